//! `POST /v1/responses/input_tokens`

use std::sync::Arc;

use amalgam_app::token_count;
use amalgam_core::{Fault, Scope};
use amalgam_protocol::{ResponseParameters, Writer};
use axum::{
    Extension,
    extract::{Request, State},
    response::Response,
};

use crate::{
    app::App,
    body::read_json,
    wires::{WireError, answer},
};

/// Counts the tokens of a request in the form that its upstream would get.
pub(super) async fn count(
    State(app): State<Arc<App>>,
    Extension(scope): Extension<Scope>,
    request: Request,
) -> Result<Response, WireError> {
    let (_, body) = read_json(request, app.whole_body(), &app.memory).await?;
    let parameters = ResponseParameters::parse(&body, app.limits.json_depth).map_err(Fault::from)?;
    let tokens = token_count::input_tokens(&app, &scope, parameters).await?;
    let mut writer = Writer::with_capacity(64);
    writer.object(|writer| {
        writer.key("object").string("response.input_tokens");
        writer.key("input_tokens").number(tokens);
    });
    Ok(answer::json(writer.into_bytes()))
}
