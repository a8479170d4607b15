//! What clients ask around the objects: discovery, `OpenAPI`, tables, strategic merge patch. Pure functions.
