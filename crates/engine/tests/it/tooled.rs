//! A turn with tools that the server runs, as a door would start it.

use std::{collections::HashMap, sync::Arc};

use amalgam_core::{
    ArgumentCheck, BANK_LABEL, BoxFuture, CallDisplay, Candidate, Delivery, Fault, Handler, Policy, Scope, Seal,
    ServerTool, ToolCall, ToolError, ToolOutput, normalise, store::Approval,
};
use amalgam_engine::{Engine, Identity, ModelCall, Run, TurnPrompt, TurnStart, TurnStorage, TurnTools};
use amalgam_protocol::{Effective, Json, Raw, ResponseParameters, ResponseSettings};

/// A turn to start.
pub(crate) struct Tooled<'a> {
    /// The request with its tools as the model is offered them.
    pub(crate) body: &'a str,
    pub(crate) delivery: Delivery,
    pub(crate) identity: Identity,
    pub(crate) keep: Option<fn(&ResponseSettings, bool) -> TurnStorage>,
    pub(crate) scope: Scope,
    pub(crate) candidate: Candidate,
    pub(crate) tools: Vec<Arc<ServerTool>>,
    /// The functions of the client; none for any.
    pub(crate) client_functions: Option<Vec<&'static str>>,
    pub(crate) sequential: bool,
    pub(crate) max_calls: Option<u32>,
    pub(crate) listings: Vec<(String, Json)>,
    pub(crate) decided: Vec<Approval>,
}

impl Tooled<'_> {
    pub(crate) async fn start(self, engine: &Engine) -> Result<Box<Run>, Fault> {
        let parameters: ResponseParameters = self.body.parse().unwrap();
        let request = parameters.view().unwrap();
        let history = normalise(None, request.input.as_ref());
        let stored = self.keep.is_some();
        let settings = ResponseSettings::new(&request, Effective { model: "m", stored, background: false });
        let candidates = vec![self.candidate];
        let prompt = TurnPrompt {
            parameters: parameters.clone(),
            before: Vec::new(),
            own: None,
            candidates: candidates.clone(),
            seal: Arc::new(Open),
            seal_context: "t".to_owned(),
            delivery: self.delivery,
            strict: false,
            stored,
            memory: None,
            prompt: None,
            losses: Vec::new(),
        };
        let scope = self.scope.clone();
        let tooling = TurnTools {
            scope: self.scope,
            tools: self.tools.into_iter().map(|tool| (tool.name.clone(), tool)).collect::<HashMap<_, _>>(),
            client_functions: self.client_functions.map(|names| names.into_iter().map(ToOwned::to_owned).collect()),
            sequential: self.sequential,
            rounds: None,
            limit_each_call: false,
            max_calls: self.max_calls,
            listings: self.listings,
            approved: self.decided,
            prompt: Arc::new(prompt),
        };
        let ask = Box::new(TurnStart {
            identity: &self.identity,
            storage: self.keep.map(|keep| keep(&settings, self.delivery == Delivery::Stream)),
            origin: amalgam_core::TurnOrigin::default(),
            began: tokio::time::Instant::now(),
            resumes_after: None,
            settings,
            call: ModelCall {
                scope: &scope,
                candidates: &candidates,
                parameters: &parameters,
                request: &request,
                history: &history,
                delivery: self.delivery,
                seal_context: "t",
                strict: false,
                stored,
                memory: None,
                losses: Vec::new(),
                announcement: None,
            },
            tools: Some(Box::new(tooling)),
            call_ids: false,
            used_calls: std::collections::HashSet::new(),
            format: None,
            counts_prompt: false,
        });
        engine.start(ask).await
    }
}

/// A tool of the bank whose arguments may hold anything but `bad`.
pub(crate) fn tool(name: &str, policy: Policy, handler: impl Handler + 'static) -> ServerTool {
    ServerTool {
        name: name.to_owned(),
        label: BANK_LABEL.to_owned(),
        own_name: name.to_owned(),
        description: None,
        parameters: json("{}"),
        guidance: None,
        policy,
        shown: CallDisplay::McpCall,
        check: Arc::new(NothingBad),
        handler: Arc::new(handler),
    }
}

/// One call as a handler sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) call_id: String,
    pub(crate) key: String,
    pub(crate) arguments: String,
}

/// A handler made of a function.
pub(crate) struct Does<F>(pub(crate) F);

/// What such a function gives back.
pub(crate) type Doing = BoxFuture<'static, Result<ToolOutput, ToolError>>;

impl<F: Fn(Seen) -> Doing + Send + Sync> Handler for Does<F> {
    fn run<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        let ToolCall { call_id, key, arguments, .. } = call;
        let arguments = arguments.text().to_owned();
        (self.0)(Seen { call_id: call_id.to_owned(), key: key.to_owned(), arguments })
    }
}

struct NothingBad;

impl ArgumentCheck for NothingBad {
    fn check(&self, arguments: Raw<'_>) -> Result<(), String> {
        match arguments.get("bad") {
            Some(_) => Err("/bad: is not allowed".to_owned()),
            None => Ok(()),
        }
    }
}

pub(crate) fn json(text: &str) -> Json {
    Json::from(Raw::parse(text.as_bytes()).unwrap())
}

/// Nothing is sealed in these turns.
struct Open;

impl Seal for Open {
    fn seal(&self, _: &str, plain: &[u8]) -> String {
        String::from_utf8_lossy(plain).into_owned()
    }

    fn open(&self, _: &str, _: &str) -> Option<Vec<u8>> {
        None
    }
}
