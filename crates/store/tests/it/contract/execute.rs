//! Sessions of the strict contract: storing, listing and deleting them, and their modes.

use amalgam_core::{
    Scope,
    store::{AgentSession, ModeChange, NewStep, Retention, TakenStep},
};

use super::retention::KEEP_ALL;
use crate::given::*;

fn new(id: &str) -> AgentSession {
    AgentSession {
        id: id.into(),
        profile: None,
        mode: "general".into(),
        solution_context: None,
        turns: 0,
        created_at_ms: NOW,
        updated_at_ms: NOW,
    }
}

/// Opens a session.
pub(crate) async fn open(store: &Engine, scope: &Scope, id: &str) {
    store.open_session(scope, new(id)).await.unwrap();
}

/// A session that is there.
pub(crate) async fn session(store: &Engine, scope: &Scope, id: &str) -> AgentSession {
    store.agent_session(scope, id).await.unwrap().unwrap()
}

/// A turn of one step without results; what answers it.
async fn take(store: &Engine, scope: &Scope, session_id: &str, turn_id: &str) -> Turn {
    let answer = Turn::new(turn_id);
    let step = NewStep {
        session_id: session_id.into(),
        turn_id: turn_id.into(),
        fingerprint: [1; 32],
        follows: None,
        response_id: answer.id.clone(),
        process: HERE,
        mode: "general".into(),
        notes: json("{}"),
        solution_context: None,
        now_ms: NOW,
    };
    let taken = store.take_step(scope, step).await.unwrap();
    assert!(matches!(taken, TakenStep::First { .. }), "{taken:?}");
    answer
}

fn change(mode: &str, turn_id: &str, at_ms: u64) -> ModeChange {
    ModeChange {
        previous: "whatever".into(),
        mode: mode.into(),
        reason: "because \"so\" 🦀".into(),
        turn_id: turn_id.into(),
        at_ms,
    }
}

pub(crate) async fn a_session_is_read_back_as_it_was_opened(store: Engine) {
    let full = AgentSession {
        profile: Some("home".into()),
        mode: "CODE_EDIT".into(),
        solution_context: Some("Lösung \"x\"".into()),
        updated_at_ms: NOW + 5,
        ..new("sess_2")
    };
    for opened in [new("sess_1"), full] {
        store.open_session(&anna(), opened.clone()).await.unwrap();
        assert_eq!(session(&store, &anna(), &opened.id).await, opened);
        assert!(store.open_session(&anna(), opened).await.is_err(), "an id is used once");
    }
    assert_eq!(store.agent_session(&anna(), "sess_3").await.unwrap(), None);
    assert_eq!(store.agent_turns(&anna(), "sess_1", None, 9).await.unwrap(), Some(Vec::new()));
    assert_eq!(store.mode_changes(&anna(), "sess_1", 9).await.unwrap(), Some(Vec::new()));
}

pub(crate) async fn sessions_and_turns_are_paged_newest_first(store: Engine) {
    let sessions = ["sess_d", "sess_c", "sess_b", "sess_a"];
    for id in sessions.iter().rev() {
        open(&store, &anna(), id).await;
    }
    open(&store, &strangers()[0], "sess_x").await;
    let page = async |after, limit| {
        let found = store.agent_sessions(&anna(), after, limit).await.unwrap();
        found.into_iter().map(|session| session.id).collect::<Vec<_>>()
    };
    assert_eq!(page(None, 9).await, sessions);
    assert_eq!(page(None, 2).await, sessions[..2]);
    assert_eq!(page(Some("sess_c"), 9).await, sessions[2..]);
    assert_eq!(page(Some("sess_a"), 9).await, [""; 0]);
    assert_eq!(page(None, 0).await, [""; 0]);

    for turn_id in ["t1", "t2", "t3", "t4"] {
        let answer = take(&store, &anna(), "sess_a", turn_id).await;
        keep(&store, &anna(), answer.whole(None)).await;
    }
    let page = async |before, limit| {
        let found = store.agent_turns(&anna(), "sess_a", before, limit).await.unwrap().unwrap();
        found.into_iter().map(|turn| (turn.number, turn.turn_id)).collect::<Vec<_>>()
    };
    let all = [(4, "t4"), (3, "t3"), (2, "t2"), (1, "t1")].map(|(number, id)| (number, id.to_owned()));
    assert_eq!(page(None, 9).await, all);
    assert_eq!(page(None, 2).await, all[..2]);
    assert_eq!(page(Some(3), 1).await, all[2..3]);
    assert_eq!(page(Some(3), 9).await, all[2..]);
    assert_eq!(page(Some(1), 9).await, []);
    assert_eq!(page(None, 0).await, []);
}

pub(crate) async fn a_session_remembers_how_its_mode_changed(store: Engine) {
    // O-35
    open(&store, &anna(), "sess_1").await;
    for (mode, turn_id, at_ms) in [("QA", "t1", NOW + 1), ("CODE_EDIT", "t2", NOW + 2), ("general", "t2", NOW + 2)] {
        assert!(store.change_mode(&anna(), "sess_1", change(mode, turn_id, at_ms)).await.unwrap());
    }
    let told = session(&store, &anna(), "sess_1").await;
    assert_eq!((told.mode.as_str(), told.updated_at_ms), ("general", NOW + 2));
    let expected = [
        ModeChange { previous: "general".into(), ..change("QA", "t1", NOW + 1) },
        ModeChange { previous: "QA".into(), ..change("CODE_EDIT", "t2", NOW + 2) },
        ModeChange { previous: "CODE_EDIT".into(), ..change("general", "t2", NOW + 2) },
    ];
    let changes = async |limit| store.mode_changes(&anna(), "sess_1", limit).await.unwrap().unwrap();
    assert_eq!(changes(9).await, expected);
    assert_eq!(changes(2).await, expected[1..], "the newest of them, the oldest first");
    assert!(!store.change_mode(&anna(), "sess_2", change("QA", "t1", NOW)).await.unwrap());
    assert_eq!(store.mode_changes(&anna(), "sess_2", 9).await.unwrap(), None);
}

pub(crate) async fn a_deleted_session_is_gone_with_its_turns(store: Engine) {
    store.beat(operator(), HERE, 1).await.unwrap();
    for id in ["sess_1", "sess_2"] {
        open(&store, &anna(), id).await;
        assert!(store.change_mode(&anna(), id, change("QA", "t1", NOW)).await.unwrap());
    }
    let mut answers = Vec::new();
    for turn_id in ["t1", "t2", "t3"] {
        let answer = take(&store, &anna(), "sess_1", turn_id).await;
        keep(&store, &anna(), answer.whole(None)).await;
        answers.push(answer.id);
    }
    let running = take(&store, &anna(), "sess_2", "t1").await;
    assert_eq!(store.delete_session(&anna(), "sess_1").await.unwrap(), Some(answers.clone()));
    assert_eq!(store.delete_session(&anna(), "sess_1").await.unwrap(), None);
    assert_eq!(store.agent_session(&anna(), "sess_1").await.unwrap(), None);
    assert_eq!(store.agent_turn(&anna(), "sess_1", "t1").await.unwrap(), None);
    assert_eq!(store.agent_turns(&anna(), "sess_1", None, 9).await.unwrap(), None);
    assert_eq!(store.mode_changes(&anna(), "sess_1", 9).await.unwrap(), None);
    assert!(store.response(&anna(), &answers[0]).await.unwrap().is_some(), "they are the caller's to forget");
    // Nothing of it comes back with a session of the same name, and the other one has what it had.
    open(&store, &anna(), "sess_1").await;
    assert_eq!(store.agent_turns(&anna(), "sess_1", None, 9).await.unwrap(), Some(Vec::new()));
    assert_eq!(store.mode_changes(&anna(), "sess_1", 9).await.unwrap(), Some(Vec::new()));
    let kept = store.agent_turns(&anna(), "sess_2", None, 9).await.unwrap().unwrap();
    assert_eq!(kept[0].steps[0].response_id, running.id);
    assert_eq!(store.mode_changes(&anna(), "sess_2", 9).await.unwrap().unwrap().len(), 1);
}

pub(crate) async fn sessions_of_others_look_missing(store: Engine) {
    // S10
    open(&store, &anna(), "sess_1").await;
    let answer = take(&store, &anna(), "sess_1", "t1").await;
    assert!(store.change_mode(&anna(), "sess_1", change("QA", "t1", NOW)).await.unwrap());
    for stranger in strangers() {
        assert_eq!(store.agent_sessions(&stranger, None, 9).await.unwrap(), []);
        for id in ["sess_1", "sess_never"] {
            assert_eq!(store.agent_session(&stranger, id).await.unwrap(), None);
            assert_eq!(store.agent_turn(&stranger, id, "t1").await.unwrap(), None);
            assert_eq!(store.agent_turns(&stranger, id, None, 9).await.unwrap(), None);
            assert_eq!(store.mode_changes(&stranger, id, 9).await.unwrap(), None);
            assert!(!store.change_mode(&stranger, id, change("CODE_EDIT", "t1", NOW)).await.unwrap());
            assert_eq!(store.delete_session(&stranger, id).await.unwrap(), None);
        }
    }
    assert_eq!(session(&store, &anna(), "sess_1").await.mode, "QA");
    assert_eq!(store.mode_changes(&anna(), "sess_1", 9).await.unwrap().unwrap().len(), 1);
    assert_eq!(store.delete_session(&anna(), "sess_1").await.unwrap(), Some(vec![answer.id]));
}

pub(crate) async fn sessions_outlive_their_responses_and_go_with_a_reset(store: Engine) {
    open(&store, &anna(), "sess_1").await;
    let answer = take(&store, &anna(), "sess_1", "t1").await;
    keep(&store, &anna(), answer.whole(None)).await;
    assert!(store.change_mode(&anna(), "sess_1", change("QA", "t1", NOW)).await.unwrap());
    let all = Retention { responses_before_ms: Some(NOW + 1000), ..KEEP_ALL };
    assert!(store.prune(operator(), all).await.unwrap().rows > 0);
    assert_eq!(store.prune(operator(), all).await.unwrap().rows, 0);
    assert_eq!(store.response(&anna(), &answer.id).await.unwrap(), None);
    assert_eq!(store.agent_turns(&anna(), "sess_1", None, 9).await.unwrap().unwrap().len(), 1);

    store.reset(operator(), amalgam_core::store::Reset::Runtime(Vec::new())).await.unwrap();
    assert_eq!(store.agent_sessions(&anna(), None, 9).await.unwrap(), []);
    open(&store, &anna(), "sess_1").await;
    assert_eq!(store.agent_turns(&anna(), "sess_1", None, 9).await.unwrap(), Some(Vec::new()));
    assert_eq!(store.mode_changes(&anna(), "sess_1", 9).await.unwrap(), Some(Vec::new()));
}
