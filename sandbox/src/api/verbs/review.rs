//! Questions about what one may do. Everyone may do everything here.

use http::StatusCode;
use serde_json::{Value, json};

use super::admit::Source;
use crate::api::{
    object::map,
    options::WriteOptions,
    state::{Call, Reply, State},
    status::ApiError,
};

impl State {
    pub(in crate::api) fn review(
        &self,
        call: &Call<'_>,
        mut review: Value,
        options: &WriteOptions,
    ) -> Result<Reply, ApiError> {
        call.check_body(&mut review)?;
        call.admit(&mut review, options, Source::Body)?;
        self.own(call, None, &mut review, options);
        map(&mut review).insert("status".into(), json!({"allowed": true}));
        Ok(Reply::Plain {
            code: StatusCode::CREATED,
            body: review,
        })
    }
}
