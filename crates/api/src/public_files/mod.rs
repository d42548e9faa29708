//! Files served outside the API under their public paths: uploads of projects and avatars.

pub(crate) mod avatars;
pub(crate) mod identicon;
pub(crate) mod uploads;
