//! Selects the part of a thread that is sent to the model.

/// The newest messages of a thread: whole ones, at most `messages` of them, with at most `characters` in total.
/// `history` is role and content, oldest first; the result is its end.
///
/// The first message that exceeds a limit ends the window: older ones would make no sense without it. A window does not
/// begin with a tool's result, since the call that it answers would be missing.
pub fn window(history: &[(String, String)], messages: usize, characters: usize) -> &[(String, String)] {
    let mut left = characters;
    let newest_messages = history
        .iter()
        .rev()
        .take(messages)
        .take_while(|(_, content)| match left.checked_sub(content.chars().count()) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        })
        .count();
    let newest = history.get(history.len() - newest_messages..).unwrap_or_default();
    let orphans = newest.iter().take_while(|(role, _)| role == "tool").count();
    newest.get(orphans..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn thread(messages: &[(&str, &str)]) -> Vec<(String, String)> {
        messages.iter().map(|(role, content)| ((*role).to_owned(), (*content).to_owned())).collect()
    }

    #[test]
    fn either_limit_ends_the_window_and_no_message_is_split() {
        // RNCC-28
        let history = thread(&[("user", "one"), ("assistant", "two"), ("user", "héé"), ("assistant", "four")]);
        for (messages, characters, kept) in [
            (4, 13, 4),
            (4, 12, 3),
            (2, 1000, 2),
            // Characters, not bytes.
            (3, 7, 2),
            (3, 6, 1),
            (3, 3, 0),
            (0, 1000, 0),
            (usize::MAX, usize::MAX, 4),
        ] {
            let newest = &history[history.len() - kept..];
            assert_eq!(window(&history, messages, characters), newest, "{messages} {characters}");
        }
        assert_eq!(window(&[], 5, 5), []);
    }

    #[test]
    fn a_message_behind_one_that_is_too_long_is_not_taken_instead() {
        let history = thread(&[("user", "a"), ("assistant", "much too long"), ("user", "b")]);
        assert_eq!(window(&history, 10, 5), &history[2..]);
    }

    #[test]
    fn a_window_does_not_begin_with_the_result_of_a_call_that_is_gone() {
        let history = thread(&[("assistant", "call"), ("tool", "one"), ("tool", "two"), ("assistant", "told")]);
        assert_eq!(window(&history, 3, 1000), &history[3..]);
        assert_eq!(window(&history, 4, 1000), history);
    }

    proptest! {
        #[test]
        fn a_window_is_the_end_of_its_thread_within_both_limits(
            contents in proptest::collection::vec(".{0,12}", 0..30), messages in 0usize..40, characters in 0usize..200,
        ) {
            let history: Vec<_> = contents.into_iter().map(|content| ("user".to_owned(), content)).collect();
            let window = window(&history, messages, characters);
            let weight = |messages: &[(String, String)]| messages.iter().map(|(_, text)| text.chars().count()).sum::<usize>();
            prop_assert!(history.ends_with(window));
            prop_assert!(window.len() <= messages && weight(window) <= characters);
            // One more message would exceed a limit.
            if window.len() < history.len().min(messages) {
                prop_assert!(weight(&history[history.len() - window.len() - 1..]) > characters);
            }
        }
    }
}
