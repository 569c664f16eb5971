//! The block of a system prompt with guidance on tools.

/// Guidance on tools as one block, in the given order. Tools without guidance are left out; without any guidance there
/// is no block.
pub fn tool_usage_block<'a>(tools: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<String> {
    let mut block = String::new();
    for (name, guidance) in tools {
        let guidance = guidance.trim();
        if !guidance.is_empty() {
            block.push_str(&format!(
                "<<<APTIX_TOOL_USAGE_BEGIN name='{name}'>>>\n{guidance}\n<<<APTIX_TOOL_USAGE_END name='{name}'>>>\n\n"
            ));
        }
    }
    (!block.is_empty()).then(|| {
        format!("<<<APTIX_SERVER_TOOL_USAGE_METADATA_BEGIN>>>\n{block}<<<APTIX_SERVER_TOOL_USAGE_METADATA_END>>>\n")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guidance_on_tools_is_one_delimited_block() {
        // R003-20, R003-21, R003-22, R003-23
        let block = tool_usage_block([("zeta", "  Use it.\n"), ("blank", " \n"), ("alpha", "Two\nlines")]);
        let expected = "<<<APTIX_SERVER_TOOL_USAGE_METADATA_BEGIN>>>\n\
            <<<APTIX_TOOL_USAGE_BEGIN name='zeta'>>>\nUse it.\n<<<APTIX_TOOL_USAGE_END name='zeta'>>>\n\n\
            <<<APTIX_TOOL_USAGE_BEGIN name='alpha'>>>\nTwo\nlines\n<<<APTIX_TOOL_USAGE_END name='alpha'>>>\n\n\
            <<<APTIX_SERVER_TOOL_USAGE_METADATA_END>>>\n";
        assert_eq!(block.as_deref(), Some(expected));
        assert_eq!(tool_usage_block([]), None);
        assert_eq!(tool_usage_block([("blank", "")]), None);
    }
}
