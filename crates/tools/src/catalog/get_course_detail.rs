//! `get_course_detail`: everything about one course of the caller's tenant.

use std::sync::Arc;

use amalgam_assistant::{
    catalog::{GET_COURSE_DETAIL, ToolSeed},
    recommendation, request,
};
use amalgam_core::{BoxFuture, Handler, ToolCall, ToolError, ToolOutput, store::CourseStore};
use amalgam_protocol::{Json, Writer};

use super::{CoursePorts, seeded};
use crate::builtin::Builtin;

pub(super) fn builtin(ports: &CoursePorts) -> Builtin {
    let seed = ToolSeed::named(GET_COURSE_DETAIL).expect("the catalogue of seeds has every tool of courses");
    seeded(seed, Arc::new(Detail { store: Arc::clone(&ports.store) }))
}

struct Detail {
    store: Arc<dyn CourseStore>,
}

impl Handler for Detail {
    fn run<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            // Digits as text are accepted, as in a request's metadata.
            let id = call.arguments.get("course_id").and_then(request::course_id);
            let id = id.ok_or_else(|| ToolError::Refused("course_id must be a positive integer.".to_owned()))?;
            let course = self.store.course(call.scope, id).await;
            let course = course.map_err(|error| ToolError::Broken { detail: error.to_string() })?;
            let course = course.ok_or_else(|| ToolError::Refused(format!("Course with id={id} was not found.")))?;
            let mut writer = Writer::with_capacity(512);
            writer.object(|writer| recommendation::write_detail(writer.key("course"), &course));
            Ok(ToolOutput { output: Json::from_writer(writer) })
        })
    }
}
