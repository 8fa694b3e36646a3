//! Entry for fuzz targets.

use super::stdio::scan::{Addressee, Scan};

/// Whom a line that arrives in these chunks is for.
pub(crate) fn scan(chunks: &[&[u8]]) -> (Addressee, bool) {
    let mut scan = Scan::default();
    for chunk in chunks {
        scan.feed(chunk);
    }
    (scan.addressee(), scan.is_rpc())
}
