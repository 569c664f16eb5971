use std::sync::Mutex as Lock;

use amalgam_core::{
    Rights, Scope, StoreError, TenantState,
    store::{AgentTurn, NewStep, Stored, TakenStep},
};
use amalgam_execute::modes;
use serde_json::{Value, json};

use super::*;

/// A clock that always returns the same time.
struct Noon;

impl Clock for Noon {
    fn now_ms(&self) -> u64 {
        12 * 3_600_000
    }
}

/// A method that the tool must not call.
fn unused<'a, T: Send + 'a>() -> Stored<'a, T> {
    Box::pin(async { Err(StoreError::Broken("the tool only changes the mode".to_owned())) })
}

/// Records how modes change; every other method fails.
#[derive(Default)]
struct Book {
    changes: Lock<Vec<(String, ModeChange)>>,
    /// The result of a change that is not recorded.
    instead: Option<Result<bool, StoreError>>,
}

impl ExecuteStore for Book {
    fn open_session<'a>(&'a self, _: &'a Scope, _: AgentSession) -> Stored<'a, ()> {
        unused()
    }

    fn agent_session<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<AgentSession>> {
        unused()
    }

    fn agent_sessions<'a>(&'a self, _: &'a Scope, _: Option<&'a str>, _: usize) -> Stored<'a, Vec<AgentSession>> {
        unused()
    }

    fn delete_session<'a>(&'a self, _: &'a Scope, _: &'a str) -> Stored<'a, Option<Vec<String>>> {
        unused()
    }

    fn agent_turn<'a>(&'a self, _: &'a Scope, _: &'a str, _: &'a str) -> Stored<'a, Option<AgentTurn>> {
        unused()
    }

    fn agent_turns<'a>(
        &'a self,
        _: &'a Scope,
        _: &'a str,
        _: Option<u64>,
        _: usize,
    ) -> Stored<'a, Option<Vec<AgentTurn>>> {
        unused()
    }

    fn take_step<'a>(&'a self, _: &'a Scope, _: NewStep) -> Stored<'a, TakenStep> {
        unused()
    }

    fn drop_step<'a>(&'a self, _: &'a Scope, _: &'a str, _: &'a str) -> Stored<'a, ()> {
        unused()
    }

    fn change_mode<'a>(&'a self, _: &'a Scope, session_id: &'a str, change: ModeChange) -> Stored<'a, bool> {
        let answer = self.instead.clone().unwrap_or_else(|| {
            self.changes.lock().unwrap().push((session_id.to_owned(), change));
            Ok(true)
        });
        Box::pin(async move { answer })
    }

    fn mode_changes<'a>(&'a self, _: &'a Scope, _: &'a str, _: usize) -> Stored<'a, Option<Vec<ModeChange>>> {
        unused()
    }
}

#[expect(clippy::disallowed_methods, reason = "a caller for tests")]
fn caller() -> Scope {
    Scope::authenticated(1, "user", TenantState::Stored, Rights::USE)
}

fn session() -> AgentSession {
    AgentSession {
        id: "sess_1".to_owned(),
        profile: None,
        mode: "general".to_owned(),
        solution_context: None,
        turns: 1,
        created_at_ms: 0,
        updated_at_ms: 0,
    }
}

fn offered(book: &Arc<Book>) -> ServerTool {
    let store: Arc<dyn ExecuteStore> = Arc::clone(book) as _;
    let modes = modes::all(&[]);
    tool(ChangeMode::new(store, Arc::new(Noon), &session(), "turn-1", &modes), &modes)
}

async fn call(tool: &ServerTool, arguments: Value) -> Result<Value, ToolError> {
    let text = arguments.to_string();
    let arguments = Raw::parse(text.as_bytes()).unwrap();
    tool.check.check(arguments).map_err(ToolError::Refused)?;
    let call = ToolCall { scope: &caller(), call_id: "call_1", key: "key", arguments, trace: None };
    let output = tool.handler.run(call).await?;
    Ok(serde_json::from_slice(output.output.bytes()).unwrap())
}

#[test]
fn the_tool_names_every_mode() {
    // O-33, O-35
    let tool = offered(&Arc::default());
    let parameters: Value = serde_json::from_slice(tool.parameters.bytes()).unwrap();
    let names = json!(["CODE_EDIT", "DDR_CREATION", "general", "QA"]);
    assert_eq!(parameters["properties"]["mode"]["enum"], names);
    assert_eq!(
        [&parameters["required"], &parameters["additionalProperties"]],
        [&json!(["mode", "reason"]), &json!(false)]
    );
    let description = tool.description.unwrap();
    assert!(description.contains("\n- QA: Questions and answers"), "{description}");
    assert_eq!([tool.name.as_str(), &tool.own_name, &tool.label], ["change_mode", "change_mode", "amalgam"]);
}

#[tokio::test]
async fn changes_are_kept_one_after_the_other() {
    // O-35
    let book = Arc::new(Book::default());
    let tool = offered(&book);
    let first = call(&tool, json!({"mode": "qa", "reason": " Questions. "})).await.unwrap();
    assert_eq!(
        [&first["mode"], &first["previous_mode"], &first["changed"]],
        [&json!("QA"), &json!("general"), &json!(true)]
    );
    call(&tool, json!({"mode": "CODE_EDIT", "reason": "x".repeat(2_000)})).await.unwrap();
    let changes = book.changes.lock().unwrap();
    let change = |previous: &str, mode: &str, reason: String| {
        let (previous, mode, turn_id) = (previous.to_owned(), mode.to_owned(), "turn-1".to_owned());
        ("sess_1".to_owned(), ModeChange { previous, mode, reason, turn_id, at_ms: Noon.now_ms() })
    };
    let expected =
        [change("general", "QA", "Questions.".to_owned()), change("QA", "CODE_EDIT", "x".repeat(MAX_REASON_CHARS))];
    assert_eq!(*changes, expected);
}

#[tokio::test]
async fn the_mode_that_it_already_is_changes_nothing() {
    let book = Arc::new(Book::default());
    let output = call(&offered(&book), json!({"mode": "GENERAL", "reason": "Again."})).await.unwrap();
    assert_eq!([&output["mode"], &output["changed"]], [&json!("general"), &json!(false)]);
    assert!(book.changes.lock().unwrap().is_empty());
}

#[tokio::test]
async fn what_cannot_be_is_refused_in_words() {
    let book = Arc::new(Book::default());
    let tool = offered(&book);
    for (arguments, expected) in [
        (
            json!({"mode": "poetry", "reason": "x"}),
            "There is no mode `poetry`. The modes are: CODE_EDIT, DDR_CREATION, general, QA.",
        ),
        (json!({"mode": "QA"}), "/reason: is required"),
        (json!({"mode": " ", "reason": "x"}), "/mode: must not be blank"),
        (json!({"mode": 1, "reason": "x"}), "/mode: must be a string"),
        (json!({"mode": "QA", "reason": "x", "now": true}), "/now: is not known"),
        (json!(["QA"]), "the arguments are an array; they have to be an object"),
    ] {
        let refused = call(&tool, arguments.clone()).await.unwrap_err();
        assert_eq!(refused, ToolError::Refused(expected.to_owned()), "{arguments}");
    }
    assert!(book.changes.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_session_that_is_gone_and_a_store_that_is_away_change_nothing() {
    let change = json!({"mode": "QA", "reason": "x"});
    let gone = Arc::new(Book { instead: Some(Ok(false)), ..Book::default() });
    let refused = call(&offered(&gone), change.clone()).await.unwrap_err();
    assert_eq!(refused, ToolError::Refused("The session is not there any more.".to_owned()));
    let away = Arc::new(Book { instead: Some(Err(StoreError::Busy)), ..Book::default() });
    let tool = offered(&away);
    for _ in 0..2 {
        let broken = call(&tool, change.clone()).await.unwrap_err();
        assert!(matches!(broken, ToolError::Broken { .. }), "{broken}");
    }
}
