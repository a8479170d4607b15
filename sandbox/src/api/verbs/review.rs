//! Questions about what one may do. Everyone may do everything here.

use http::StatusCode;
use serde_json::{Value, json};

use crate::api::{
    object::map,
    state::{Call, Reply},
    status::ApiError,
};

impl Call<'_> {
    pub(in crate::api) fn review(&self, mut review: Value) -> Result<Reply, ApiError> {
        self.check_body(&mut review)?;
        map(&mut review).insert(
            "status".into(),
            json!({"allowed": true, "reason": "there are no rules here"}),
        );
        Ok(Reply::Plain {
            code: StatusCode::CREATED,
            body: review,
        })
    }
}
