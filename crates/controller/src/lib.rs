//! Turns an administrative request and the metadata image into records and a response.
