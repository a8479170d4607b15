//! When a stage of a job starts.
//!
//! A trigger fires when the hour is right and the condition holds; a part that is absent does not hold it back.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::rule;

/// When a stage of a job starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    /// How often to look. (Sedna's local controller ignores it and looks every 10 s.)
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_period_seconds: Option<i64>,
    /// The hours in which the stage may start; any if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timer: Option<Timer>,
    /// What has to hold.
    pub condition: TriggerCondition,
}

/// Hours of the day in the node's local time, both ends included. A start later than the end spans midnight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Timer {
    /// From when, `HH:MM`.
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-validations" = [rule(
            "self.matches('^([01][0-9]|2[0-3]):[0-5][0-9]$')",
            "must be a time of day as HH:MM, such as 02:00",
        )])
    )]
    pub start: String,
    /// Until when, `HH:MM`; `24:00` for the end of the day.
    #[schemars(
        length(max = 16),
        extend("x-kubernetes-validations" = [rule(
            "self.matches('^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$')",
            "must be a time of day as HH:MM, such as 04:00",
        )])
    )]
    pub end: String,
}

/// A figure compared with a threshold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TriggerCondition {
    /// How the figure compares with the threshold.
    pub operator: Operator,
    /// The threshold.
    pub threshold: f64,
    /// The figure's name, or `name[index]` where the figure is a list: `num_of_samples`, `precision_delta[0]`.
    #[schemars(
        length(max = 256),
        extend("x-kubernetes-validations" = [rule(
            r"self.matches('^[^\\[\\]]+(\\[[0-9]+\\])?$')",
            "must be the name of a figure, with an index where the figure is a list: name or name[0]",
        )])
    )]
    pub metric: String,
}

/// How two numbers compare. Equality is within 1e-6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Operator {
    /// Greater.
    #[default]
    #[serde(rename = ">")]
    Greater,
    /// Greater, as a word.
    #[serde(rename = "gt")]
    Gt,
    /// Greater or equal.
    #[serde(rename = ">=")]
    GreaterOrEqual,
    /// Greater or equal, as a word.
    #[serde(rename = "ge")]
    Ge,
    /// Equal.
    #[serde(rename = "=")]
    Equal,
    /// Equal, doubled.
    #[serde(rename = "==")]
    EqualEqual,
    /// Equal, as a word.
    #[serde(rename = "eq")]
    Eq,
    /// Not equal.
    #[serde(rename = "!=")]
    NotEqual,
    /// Not equal, as a word.
    #[serde(rename = "ne")]
    Ne,
    /// Less or equal.
    #[serde(rename = "<=")]
    LessOrEqual,
    /// Less or equal, as a word.
    #[serde(rename = "le")]
    Le,
    /// Less.
    #[serde(rename = "<")]
    Less,
    /// Less, as a word.
    #[serde(rename = "lt")]
    Lt,
}
