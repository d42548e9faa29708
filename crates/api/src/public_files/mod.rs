//! Files served outside the API under their public paths: uploads of projects and default avatars.

pub(crate) mod identicon;
pub(crate) mod uploads;
