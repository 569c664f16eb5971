use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{
    ports::BoxFuture,
    tool::{ArgumentCheck, CallDisplay, Handler, Policy, ToolCall, ToolError, ToolOutput},
};

struct Check;

impl ArgumentCheck for Check {
    fn check(&self, arguments: Raw<'_>) -> Result<(), String> {
        match arguments.get("bad") {
            Some(_) => Err("/bad: is not allowed".to_owned()),
            None => Ok(()),
        }
    }
}

struct Never;

impl Handler for Never {
    fn run<'a>(&'a self, _: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(std::future::pending())
    }
}

fn tool(policy: Policy) -> ServerTool {
    ServerTool {
        name: "look".to_owned(),
        label: "bank".to_owned(),
        own_name: "look".to_owned(),
        description: None,
        parameters: Json::parse(&bytes::Bytes::from_static(b"{}")).unwrap(),
        guidance: None,
        policy,
        shown: CallDisplay::McpCall,
        check: Arc::new(Check),
        handler: Arc::new(Never),
    }
}

fn wanted<'a>(tool: &'a ServerTool, arguments: &'a str) -> RequestedCall<'a> {
    RequestedCall { tool: Some(tool), name: "look", arguments }
}

fn failures(step: &Step) -> Vec<Option<ToolFailure>> {
    let Step::Run(verdicts) = step else { panic!("{step:?}") };
    verdicts
        .iter()
        .map(|verdict| match verdict {
            CallDecision::Substitute(told) => Some(told.failure),
            CallDecision::Run | CallDecision::Ask(_) => None,
        })
        .collect()
}

/// One round in which the model makes these calls and all goes well.
fn round(turn: &mut Turn, tool: &ServerTool, arguments: &[&str]) -> (Step, Step) {
    let calls: Vec<RequestedCall<'_>> = arguments.iter().map(|arguments| wanted(tool, arguments)).collect();
    let judged = turn.answered(&calls, true, false, TurnUsage::default()).unwrap();
    let ran: Vec<CallResult<'_>> =
        failures(&judged).into_iter().map(|failure| CallResult { tool: Some(tool), failure }).collect();
    let next = turn.ran(&ran, TurnUsage::default()).unwrap();
    (judged, next)
}

#[test]
fn an_answer_without_calls_ends_the_turn() {
    let mut turn = Turn::new(Caps::default());
    assert_eq!(turn.answered(&[], true, false, TurnUsage::default()), Ok(Step::End(None)));
    assert_eq!(turn.answered(&[], true, false, TurnUsage::default()), Err(StepOrderError));
}

#[test]
fn at_the_cap_the_model_is_asked_once_more_without_tools_and_then_it_is_over() {
    // C-16, RNCC-33, O-27
    let tool = tool(Policy::default());
    let mut turn = Turn::new(Caps { rounds: 2, ..Caps::default() });
    assert_eq!(round(&mut turn, &tool, &[r#"{"a":1}"#]).1, Step::Ask { tools: true });
    assert_eq!(round(&mut turn, &tool, &[r#"{"a":2}"#]).1, Step::Ask { tools: false });
    let insists = turn.answered(&[wanted(&tool, "{}")], true, false, TurnUsage::default());
    assert_eq!(insists, Ok(Step::End(Some(Cap::Rounds))));
}

#[test]
fn every_cap_leads_to_the_last_call() {
    let tool = tool(Policy::default());
    let late = TurnUsage { tokens: 10, time: Duration::from_secs(10) };
    for (caps, arguments, cap) in [
        (Caps { calls: 1, ..Caps::default() }, "{}", Cap::Calls),
        (Caps { repairs: 1, ..Caps::default() }, r#"{"bad":1}"#, Cap::Repairs),
        (Caps { tokens: Some(10), ..Caps::default() }, "{}", Cap::Tokens),
        (Caps { time: Duration::from_secs(10), ..Caps::default() }, "{}", Cap::Time),
    ] {
        let mut turn = Turn::new(caps);
        let judged = turn.answered(&[wanted(&tool, arguments)], true, false, late).unwrap();
        let ran = CallResult { tool: Some(&tool), failure: failures(&judged)[0] };
        assert_eq!(turn.ran(&[ran], late), Ok(Step::Ask { tools: false }), "{cap:?}");
        assert_eq!(turn.answered(&[], true, false, late), Ok(Step::End(Some(cap))));
    }
}

#[test]
fn what_is_wrong_with_a_call_is_told_to_the_model() {
    // RNCC-32, C-15
    let tool = tool(Policy::default());
    let mut turn = Turn::new(Caps::default());
    let calls = [
        wanted(&tool, r#"{"bad":1}"#),
        wanted(&tool, "{not json"),
        RequestedCall { tool: None, name: "no\u{7}thing", arguments: "{}" },
        wanted(&tool, ""),
    ];
    let Step::Run(verdicts) = turn.answered(&calls, true, false, TurnUsage::default()).unwrap() else { panic!() };
    let text = |index: usize| match &verdicts[index] {
        CallDecision::Substitute(told) => told.output.raw().get_str("error").unwrap().into_owned(),
        verdict => panic!("{verdict:?}"),
    };
    assert_eq!(text(0), "Not run: /bad: is not allowed.");
    assert!(text(1).starts_with("Not run: the arguments are not JSON: "));
    assert_eq!(text(2), "There is no tool named `nothing`.");
    assert_eq!(verdicts[3], CallDecision::Run);
}

#[test]
fn a_flood_of_calls_is_cut() {
    let tool = tool(Policy::default());
    let mut turn = Turn::new(Caps { calls: 3, calls_at_once: 5, ..Caps::default() });
    let texts: Vec<String> = (0..200).map(|n| format!("{{\"n\":{n}}}")).collect();
    let calls: Vec<RequestedCall<'_>> = texts.iter().map(|text| wanted(&tool, text)).collect();
    let judged = failures(&turn.answered(&calls, true, false, TurnUsage::default()).unwrap());
    assert_eq!(judged.iter().filter(|failure| failure.is_none()).count(), 3);
    assert_eq!(judged[3..5], [Some(ToolFailure::TooManyCalls); 2]);
    assert!(judged[5..].iter().all(|failure| *failure == Some(ToolFailure::TooManyAtOnce)));
}

#[test]
fn the_second_same_call_is_warned_about_and_the_third_is_not_run() {
    // O-29
    let tool = tool(Policy::default());
    let mut turn = Turn::new(Caps { rounds: 5, ..Caps::default() });
    assert_eq!(failures(&round(&mut turn, &tool, &[r#"{"a":1,"b":2}"#]).0), [None]);
    assert!(turn.instructions().is_empty());
    assert_eq!(failures(&round(&mut turn, &tool, &[r#"{"b":2,"a":1}"#]).0), [None]);
    assert!(turn.instructions()[0].contains("`look`"));
    let (judged, _) = round(&mut turn, &tool, &[r#"{"a":1,"b":2}"#]);
    let Step::Run(verdicts) = &judged else { panic!() };
    let CallDecision::Substitute(told) = &verdicts[0] else { panic!() };
    assert_eq!(told.output.raw().get_str("reason").unwrap(), "repeat_tool_call_detected");
    assert!(told.output.raw().get_str("guidance").unwrap().starts_with("The result"));
    let (judged, _) = round(&mut turn, &tool, &[r#"{"a":1,"b":2}"#, r#"{"a":1,"b":2}"#]);
    let Step::Run(verdicts) = &judged else { panic!() };
    let CallDecision::Substitute(told) = &verdicts[0] else { panic!() };
    assert!(told.output.raw().get_str("guidance").unwrap().starts_with("Give the final answer now"));
}

#[test]
fn calls_of_the_client_and_calls_to_be_agreed_to_end_the_turn_after_the_others_have_run() {
    // O-28
    let careful = tool(Policy { requires_approval: Some(Decider::Caller), ..Policy::default() });
    let tool = tool(Policy::default());
    let ran = [CallResult { tool: Some(&tool), failure: None }];
    let mut turn = Turn::new(Caps::default());
    turn.answered(&[wanted(&tool, "{}")], true, true, TurnUsage::default()).unwrap();
    assert_eq!(turn.ran(&ran, TurnUsage::default()), Ok(Step::Park));
    let mut turn = Turn::new(Caps::default());
    let judged = turn.answered(&[wanted(&careful, "{}")], true, false, TurnUsage::default());
    assert_eq!(judged, Ok(Step::Run(vec![CallDecision::Ask(Decider::Caller)])));
    assert_eq!(turn.ran(&ran, TurnUsage::default()), Ok(Step::Park));
}

#[test]
fn where_approval_cannot_be_requested_the_call_is_refused_and_the_turn_continues() {
    let careful = tool(Policy { requires_approval: Some(Decider::Caller), ..Policy::default() });
    let mut turn = Turn::new(Caps::default());
    turn.be_unattended();
    let judged = turn.answered(&[wanted(&careful, "{}")], true, false, TurnUsage::default()).unwrap();
    let Step::Run(verdicts) = &judged else { panic!() };
    assert!(
        matches!(&verdicts[..], [CallDecision::Substitute(SubstituteOutput { failure: ToolFailure::Denied, .. })]),
        "{verdicts:?}"
    );
    let ran = [CallResult { tool: Some(&careful), failure: Some(ToolFailure::Denied) }];
    assert_eq!(turn.ran(&ran, TurnUsage::default()), Ok(Step::Ask { tools: true }));
}

#[test]
fn a_failure_ends_the_turn_only_where_the_tool_says_so() {
    // C-15
    let strict = tool(Policy { on_error: OnError::FailTurn, ..Policy::default() });
    let lenient = tool(Policy::default());
    for (tool, failure, fails) in [
        (&strict, ToolFailure::Broken, true),
        (&strict, ToolFailure::InvalidArguments, false),
        (&lenient, ToolFailure::Broken, false),
    ] {
        let mut turn = Turn::new(Caps::default());
        turn.answered(&[wanted(tool, "{}")], true, false, TurnUsage::default()).unwrap();
        let next = turn.ran(&[CallResult { tool: Some(tool), failure: Some(failure) }], TurnUsage::default()).unwrap();
        assert_eq!(matches!(next, Step::Fail { .. }), fails, "{failure:?}");
    }
}

#[test]
fn the_instruction_of_a_tool_is_given_once_and_only_when_its_call_went_well() {
    // C-26, RNCC-35
    let telling = tool(Policy { after_call_instruction: Some("Be short.".into()), ..Policy::default() });
    let mut turn = Turn::new(Caps::default());
    round(&mut turn, &telling, &[r#"{"bad":1}"#]);
    assert!(turn.instructions().is_empty());
    round(&mut turn, &telling, &[r#"{"a":1}"#, r#"{"a":2}"#]);
    assert_eq!(turn.instructions(), ["Be short."]);
}

#[test]
fn an_answer_that_was_cut_runs_nothing() {
    let tool = tool(Policy::default());
    let mut turn = Turn::new(Caps::default());
    assert_eq!(turn.answered(&[wanted(&tool, "{}")], false, false, TurnUsage::default()), Ok(Step::End(None)));
}

proptest! {
    #[test]
    fn whatever_the_model_does_the_turn_ends_within_its_caps(
        answers in prop::collection::vec(prop::collection::vec(0..6_u32, 0..12), 1..40),
        rounds in 1..6_u32, calls in 1..10_u32, at_once in 1..6_u32, repairs in 1..4_u32,
    ) {
        let tool = tool(Policy::default());
        let caps = Caps { rounds, calls, calls_at_once: at_once, repairs, ..Caps::default() };
        let mut turn = Turn::new(caps);
        let (mut ran_calls, mut asked) = (0, 1);
        for answer in answers.iter().chain(std::iter::once(&Vec::new())) {
            let texts: Vec<String> = answer
                .iter()
                .map(|n| if *n == 0 { r#"{"bad":1}"#.to_owned() } else { format!("{{\"n\":{n}}}") })
                .collect();
            let wanted: Vec<RequestedCall<'_>> = texts.iter().map(|text| wanted(&tool, text)).collect();
            match turn.answered(&wanted, true, false, TurnUsage::default()).unwrap() {
                Step::End(_) => break,
                judged => {
                    let judged = failures(&judged);
                    prop_assert_eq!(judged.len(), wanted.len());
                    ran_calls += judged.iter().filter(|failure| failure.is_none()).count();
                    let ran: Vec<CallResult<'_>> =
                        judged.into_iter().map(|failure| CallResult { tool: Some(&tool), failure }).collect();
                    turn.ran(&ran, TurnUsage::default()).unwrap();
                    asked += 1;
                }
            }
        }
        prop_assert!(ran_calls <= calls as usize);
        prop_assert!(asked <= rounds + 1);
    }
}
