//! Ids of completions: the id of the response with another prefix, so that each leads to the other.

const COMPLETION: &str = "chatcmpl-";
const RESPONSE: &str = "resp_";

/// The id of the completion of a response.
pub fn completion_id(response_id: &str) -> String {
    [COMPLETION, response_id.strip_prefix(RESPONSE).unwrap_or(response_id)].concat()
}

/// The id of the response of a completion; none for a text that is no id of a completion.
pub fn response_id(completion_id: &str) -> Option<String> {
    let rest = completion_id.strip_prefix(COMPLETION).filter(|rest| !rest.is_empty())?;
    Some([RESPONSE, rest].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_completion_leads_back_to_its_response() {
        let response = "resp_AM-1794849695256-mwjj60bc9oloqhwh9dalnt1d";
        let completion = completion_id(response);
        assert_eq!(completion, "chatcmpl-AM-1794849695256-mwjj60bc9oloqhwh9dalnt1d");
        assert_eq!(response_id(&completion).as_deref(), Some(response));
        for other in ["", "chatcmpl-", "resp_AM-1", "chatcmpl_AM-1"] {
            assert_eq!(response_id(other), None, "{other}");
        }
    }
}
