//! What chooses among objects: by their labels, and by their fields.

mod field;
mod label;

pub use field::FieldSelector;
pub use label::LabelSelector;
