//! Record batches for requests.
