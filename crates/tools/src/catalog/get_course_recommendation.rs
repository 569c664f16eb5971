//! `get_course_recommendation`: a page of the courses of the caller's tenant that match a question.

use std::sync::Arc;

use amalgam_assistant::{
    catalog::{GET_COURSE_RECOMMENDATION, ToolSeed},
    recommendation::CourseQuery,
};
use amalgam_core::{BoxFuture, Handler, ToolCall, ToolError, ToolOutput};
use amalgam_protocol::{Json, Raw, Writer};

use super::{CoursePorts, seeded};
use crate::builtin::Builtin;

pub(super) fn builtin(ports: &CoursePorts) -> Builtin {
    let seed = ToolSeed::named(GET_COURSE_RECOMMENDATION).expect("the catalogue of seeds has every tool of courses");
    seeded(seed, Arc::new(Recommendation { ports: ports.clone() }))
}

struct Recommendation {
    ports: CoursePorts,
}

impl Handler for Recommendation {
    fn run<'a>(&'a self, call: ToolCall<'a>) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let query = call.arguments.get_str("query").unwrap_or_default();
            let number = |name| call.arguments.get(name).and_then(Raw::as_u64);
            let wanted = CourseQuery::new(&query, number("page"), number("page_size"));
            let words = wanted.words();
            let found = self.ports.store.search_courses(call.scope, &words, wanted.offset(), wanted.limit()).await;
            let found = found.map_err(|error| ToolError::Broken { detail: error.to_string() })?;
            let mut writer = Writer::with_capacity(4096);
            wanted.write(&mut writer, &self.ports.base_url, &found);
            Ok(ToolOutput { output: Json::from_writer(writer) })
        })
    }
}
