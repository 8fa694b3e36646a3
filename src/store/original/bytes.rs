//! sled's numbers.

use super::log::Unclear;

/// What is left to read.
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

/// Where a piece of a page is.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// In the log.
    pub(super) lsn: i64,
    /// In the file.
    pub(super) offset: u64,
    /// Whether it says that the page is free.
    pub(super) is_free: bool,
}

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Unclear> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Unclear::Damaged)?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Unclear> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Unclear> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn i64(&mut self) -> Result<i64, Unclear> {
        self.take().map(i64::from_le_bytes)
    }

    /// A number of one to nine bytes.
    pub(super) fn number(&mut self) -> Result<u64, Unclear> {
        let first = self.u8()?;
        Ok(match first {
            0..=240 => u64::from(first),
            241..=248 => 240 + 256 * u64::from(first - 241) + u64::from(self.u8()?),
            249 => 2288 + 256 * u64::from(self.u8()?) + u64::from(self.u8()?),
            250.. => {
                let mut number = [0; 8];
                for byte in number.iter_mut().take(usize::from(first) - 247) {
                    *byte = self.u8()?;
                }
                u64::from_le_bytes(number)
            }
        })
    }

    /// The places of a page in a snapshot.
    pub(super) fn places(&mut self) -> Result<Vec<Place>, Unclear> {
        let pieces = self.u8()?;
        let mut places = Vec::with_capacity(usize::from(pieces.max(1)));
        for _ in 0..pieces.max(1) {
            let lsn = self.i64()?;
            if self.u8()? != 0 {
                return Err(Unclear::Damaged);
            }
            places.push(Place { lsn, offset: self.number()?, is_free: pieces == 0 });
            if pieces > 0 {
                self.number()?;
            }
        }
        Ok(places)
    }
}
