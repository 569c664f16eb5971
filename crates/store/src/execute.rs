//! Submissions of the strict contract: which of them are to be worked on, the same for every engine.
//!
//! The caller has locked the session: nothing changes between what is known here and what is written because of it.

use amalgam_core::store::{AgentStep, AgentTurn, NewStep, StepState, TakenStep};
use amalgam_protocol::Status;

/// What is known when a submission comes.
pub(crate) struct Known {
    /// The turn that it belongs to, if it was begun.
    pub(crate) turn: Option<AgentTurn>,
    /// The last step of the newest of the other turns.
    pub(crate) other: Option<OtherTurn>,
    /// The same submission of the same caller may have been written before, and the answer got lost.
    pub(crate) tried: bool,
}

/// A turn, and how its last step stands.
pub(crate) struct OtherTurn {
    pub(crate) turn_id: String,
    pub(crate) number: u64,
    pub(crate) state: StepState,
}

/// What is to be done about a submission.
#[derive(Debug, PartialEq)]
pub(crate) enum Verdict {
    /// Nothing; this is the answer.
    Told(TakenStep),
    /// It is the caller's. What is to be written, if it is not there already.
    First(Option<Write>),
}

/// A row to be written.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Write {
    /// A new step.
    Add { turn: u64, step: u64 },
    /// The last step of a turn once more; the turn's number is `turn` from then on.
    Again { before: u64, turn: u64, step: u64 },
}

impl Write {
    /// Whether the session has one turn more with it.
    pub(crate) fn is_new_turn(&self) -> bool {
        matches!(self, Self::Add { step: 1, .. })
    }
}

/// How a step stands, from what is known of its response, and whether the process that took it lives.
pub(crate) fn state(status: Option<Status>, lives: bool) -> StepState {
    match status {
        Some(status) if status.is_final() => StepState::Ended(status),
        Some(_) => StepState::Running,
        None if lives => StepState::Running,
        None => StepState::Gone,
    }
}

/// Turns from their steps, each with the number and the name of its turn; those of a turn stand together and in order.
pub(crate) fn turns(steps: Vec<(u64, String, AgentStep)>) -> Vec<AgentTurn> {
    let mut turns: Vec<AgentTurn> = Vec::new();
    for (number, turn_id, step) in steps {
        match turns.last_mut() {
            Some(turn) if turn.number == number => turn.steps.push(step),
            _ => turns.push(AgentTurn { turn_id, number, steps: vec![step] }),
        }
    }
    turns
}

/// What is to be done about a submission to a session that is there.
pub(crate) fn decide(new: &NewStep, known: Known) -> Verdict {
    match &new.follows {
        None => of_user(new, known),
        Some(follows) => of_tools(new, follows, known),
    }
}

fn of_user(new: &NewStep, known: Known) -> Verdict {
    let Known { turn, other, tried } = known;
    let last = other.as_ref().map_or(0, |other| other.number);
    let write = match turn {
        None => Write::Add { turn: last + 1, step: 1 },
        Some(AgentTurn { number, mut steps, .. }) => {
            let (count, first) = (steps.len(), steps.swap_remove(0));
            if first.fingerprint != new.fingerprint {
                return Verdict::Told(TakenStep::Different);
            }
            if tried && first.response_id == new.response_id {
                return Verdict::First(None);
            }
            if !is_free(first.state) || count > 1 {
                return Verdict::Told(TakenStep::Already(first));
            }
            // Others may have come since, and what is said now is said behind them.
            Write::Again { before: number, turn: number.max(last + 1), step: 1 }
        }
    };
    match other {
        Some(OtherTurn { turn_id, state: StepState::Running, .. }) => Verdict::Told(TakenStep::Busy { turn_id }),
        _ => Verdict::First(Some(write)),
    }
}

fn of_tools(new: &NewStep, follows: &str, known: Known) -> Verdict {
    let Known { turn, other, tried } = known;
    let Some(AgentTurn { number, mut steps, .. }) = turn else { return Verdict::Told(TakenStep::Missing) };
    let last = steps.len() - 1;
    let is_newest = other.is_none_or(|other| other.number < number);
    let follows_step = |step: Option<&AgentStep>| step.is_some_and(|step| step.response_id == follows);
    // The newest first: nothing keeps a model from calling the same once more.
    let same = (1..=last).rev().find(|at| steps[*at].fingerprint == new.fingerprint);
    if let Some(at) = same {
        if tried && steps[at].response_id == new.response_id {
            return Verdict::First(None);
        }
        if !is_free(steps[at].state) {
            return Verdict::Told(TakenStep::Already(steps.swap_remove(at)));
        }
        if at == last && is_newest && follows_step(steps.get(last - 1)) {
            let write = Write::Again { before: number, turn: number, step: last as u64 + 1 };
            return Verdict::First(Some(write));
        }
        return Verdict::Told(TakenStep::Different);
    }
    let waits = steps[last].state == StepState::Ended(Status::Completed) && follows_step(steps.get(last));
    match waits && is_newest {
        true => Verdict::First(Some(Write::Add { turn: number, step: last as u64 + 2 })),
        false => Verdict::Told(TakenStep::Different),
    }
}

/// Whether a step may be taken once more.
fn is_free(state: StepState) -> bool {
    matches!(state, StepState::Gone | StepState::Ended(Status::Failed))
}

#[cfg(test)]
mod tests {
    use amalgam_core::store::ProcessId;

    use super::*;
    use crate::rows;

    fn step(says: u8, response_id: &str, state: StepState) -> AgentStep {
        AgentStep {
            fingerprint: [says; 32],
            response_id: response_id.into(),
            mode: "general".into(),
            notes: rows::json("{}"),
            created_at_ms: 1,
            state,
        }
    }

    fn new(says: u8, follows: Option<&str>) -> NewStep {
        NewStep {
            session_id: "s".into(),
            turn_id: "t".into(),
            fingerprint: [says; 32],
            follows: follows.map(str::to_owned),
            response_id: "mine".into(),
            process: ProcessId(1),
            mode: "general".into(),
            notes: rows::json("{}"),
            solution_context: None,
            now_ms: 1,
        }
    }

    fn decided(new: &NewStep, steps: Vec<AgentStep>, other: Option<(u64, StepState)>, tried: bool) -> Verdict {
        let turn = (!steps.is_empty()).then(|| AgentTurn { turn_id: "t".into(), number: 3, steps });
        let other = other.map(|(number, state)| OtherTurn { turn_id: "o".into(), number, state });
        decide(new, Known { turn, other, tried })
    }

    const DONE: StepState = StepState::Ended(Status::Completed);
    const FAILED: StepState = StepState::Ended(Status::Failed);

    #[test]
    fn a_step_stands_as_its_response_does_and_without_one_as_its_process() {
        for status in Status::ALL {
            for lives in [true, false] {
                let expected = if status.is_final() { StepState::Ended(status) } else { StepState::Running };
                assert_eq!(state(Some(status), lives), expected);
            }
        }
        assert_eq!((state(None, true), state(None, false)), (StepState::Running, StepState::Gone));
    }

    #[test]
    fn only_what_was_tried_before_can_be_ones_own() {
        let own = |follows, before: Vec<AgentStep>, tried| {
            let steps = before.into_iter().chain([step(1, "mine", StepState::Running)]).collect();
            decided(&new(1, follows), steps, None, tried)
        };
        let first = Verdict::First(None);
        assert_eq!(own(None, Vec::new(), true), first);
        assert_eq!(own(Some("a"), vec![step(9, "a", DONE)], true), first);
        let already = Verdict::Told(TakenStep::Already(step(1, "mine", StepState::Running)));
        assert_eq!(own(None, Vec::new(), false), already);
        assert_eq!(own(Some("a"), vec![step(9, "a", DONE)], false), already);
    }

    #[test]
    fn what_is_taken_again_moves_behind_the_others_unless_it_goes_on_with_a_turn() {
        let again = |number, other| {
            let write = Write::Again { before: 3, turn: number, step: 1 };
            let verdict = decided(&new(1, None), vec![step(1, "a", FAILED)], other, false);
            assert_eq!(verdict, Verdict::First(Some(write)));
        };
        again(3, None);
        again(3, Some((2, FAILED)));
        again(6, Some((5, FAILED)));
        let steps = || vec![step(9, "a", DONE), step(1, "b", FAILED)];
        let write = Write::Again { before: 3, turn: 3, step: 2 };
        let verdict = decided(&new(1, Some("a")), steps(), Some((2, DONE)), false);
        assert_eq!(verdict, Verdict::First(Some(write)));
        let given_up = decided(&new(1, Some("a")), steps(), Some((4, DONE)), false);
        assert_eq!(given_up, Verdict::Told(TakenStep::Different));
    }

    #[test]
    fn the_same_results_a_second_time_are_those_of_the_last_step_that_had_them() {
        // A model may call the same under the same name once more.
        let steps = vec![step(9, "a", DONE), step(1, "b", DONE), step(1, "c", DONE)];
        let verdict = decided(&new(1, Some("c")), steps, None, false);
        assert_eq!(verdict, Verdict::Told(TakenStep::Already(step(1, "c", DONE))));
    }
}
