//! Avatars: images that users upload for themselves, for projects and for groups.

use crate::{AvatarId, NamespaceId, ProjectId, StorageId, Time, UserId, Violations, site::identicon_path, uploads};

/// The maximum size of an avatar, in bytes.
pub const MAX_SIZE: usize = 200 << 10;

/// The maximum length of the name of a file without its extension.
const MAX_STEM_LENGTH: usize = 100;

/// What an avatar stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AvatarOwner {
    /// A user.
    User(UserId),
    /// A project.
    Project(ProjectId),
    /// A group.
    Group(NamespaceId),
}

impl AvatarOwner {
    /// Returns the path of the avatar with this name.
    pub fn path(self, name: &str) -> String {
        let (kind, id) = match self {
            Self::User(id) => ("user", id.get()),
            Self::Project(id) => ("project", id.get()),
            Self::Group(id) => ("group", id.get()),
        };
        format!("/uploads/-/system/{kind}/avatar/{id}/{name}")
    }
}

/// Returns the path of the avatar of a user: the uploaded one, or the generated one.
pub fn path_of_user(id: UserId, username: &str, avatar: Option<&str>) -> String {
    avatar.map_or_else(|| identicon_path(username), |name| AvatarOwner::User(id).path(name))
}

/// The types of images that browsers show and that cannot contain scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageType {
    /// PNG.
    Png,
    /// JPEG.
    Jpeg,
    /// GIF.
    Gif,
    /// WebP.
    Webp,
}

impl ImageType {
    /// Returns the type of an image, by its first bytes.
    pub fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::Webp),
            _ => None,
        }
    }

    /// Returns the content type, which is also the name in the database.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
        }
    }

    /// Parses a stored content type.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Png, Self::Jpeg, Self::Gif, Self::Webp].into_iter().find(|kind| kind.content_type() == text)
    }

    fn extension(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Jpeg => "jpg",
            Self::Gif => "gif",
            Self::Webp => "webp",
        }
    }
}

/// An uploaded avatar.
#[derive(Clone, Debug)]
pub struct Avatar {
    /// The ID of the row, which is the name of the file.
    pub id: AvatarId,
    /// The folder of the file.
    pub storage: StorageId,
    /// The name in the URL.
    pub name: String,
    /// The type of the image.
    pub image_type: ImageType,
    /// The size in bytes; `None` until the upload is complete.
    pub size: Option<u64>,
    /// The time at which it was uploaded.
    pub created_at: Time,
}

/// A file that a user uploads as an avatar.
#[derive(Clone, Debug)]
pub struct NewAvatar {
    /// The name that the client sent.
    pub file_name: String,
    /// The content.
    pub bytes: Vec<u8>,
}

impl NewAvatar {
    /// Checks the content; returns the type of the image and a name for the URL. The type depends on the content only.
    pub fn check(&self) -> Result<(ImageType, String), Violations> {
        let Self { file_name, bytes } = self;
        let refuse = |text: &str| Err(Violations::one("avatar", text));
        if bytes.is_empty() {
            return refuse("is an empty file");
        }
        if bytes.len() > MAX_SIZE {
            return refuse("is too big (should be at most 200 KB)");
        }
        match ImageType::of(bytes) {
            Some(image_type) => Ok((image_type, url_name(file_name, image_type))),
            None if is_svg(bytes) => refuse("must be a PNG, JPEG, GIF or WebP image; SVG can contain scripts"),
            None => refuse("must be a PNG, JPEG, GIF or WebP image"),
        }
    }
}

/// Returns whether a file is SVG, as far as its beginning shows.
fn is_svg(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(1024)];
    start.windows(4).any(|window| window.eq_ignore_ascii_case(b"<svg"))
}

/// Returns the name of a file for its URL: ASCII only, and with the extension of its type.
fn url_name(file_name: &str, image_type: ImageType) -> String {
    let name = uploads::clean_name(file_name);
    let (stem, _) = uploads::split_name(&name);
    let stem = stem.chars().take(MAX_STEM_LENGTH).map(|c| if c.is_ascii() { c } else { '_' });
    format!("{}.{}", stem.collect::<String>(), image_type.extension())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\n....";

    #[test]
    fn the_type_of_an_image_depends_on_its_content() {
        let check = |bytes: &[u8], expected: Option<ImageType>| assert_eq!(ImageType::of(bytes), expected, "{bytes:?}");
        check(PNG, Some(ImageType::Png));
        check(b"\xff\xd8\xff\xe0", Some(ImageType::Jpeg));
        check(b"GIF89a", Some(ImageType::Gif));
        check(b"RIFF\0\0\0\0WEBPVP8 ", Some(ImageType::Webp));
        check(b"RIFF\0\0\0\0WAVEfmt ", None);
        for other in [&b""[..], b"\x89PNG", b"<svg/>", b"<html>", b"GIF", b"BM", b"%PDF-1.4"] {
            check(other, None);
        }
    }

    #[test]
    fn a_file_that_is_no_small_image_is_refused() {
        let verdict = |bytes: &[u8]| {
            let avatar = NewAvatar { file_name: "x.png".into(), bytes: bytes.to_vec() };
            avatar.check().expect_err("refused").to_string()
        };
        assert_eq!(verdict(b""), "avatar is an empty file");
        assert_eq!(verdict(b"text"), "avatar must be a PNG, JPEG, GIF or WebP image");
        let svg = b"<?xml version=\"1.0\"?><SVG xmlns=\"http://www.w3.org/2000/svg\"/>";
        assert_eq!(verdict(svg), "avatar must be a PNG, JPEG, GIF or WebP image; SVG can contain scripts");
        assert_eq!(verdict(&[PNG, &vec![0; MAX_SIZE]].concat()), "avatar is too big (should be at most 200 KB)");
    }

    #[test]
    fn the_name_in_the_url_is_safe_and_has_the_extension_of_the_type() {
        let check = |name: &str, expected: &str| {
            let avatar = NewAvatar { file_name: name.into(), bytes: PNG.to_vec() };
            assert_eq!(avatar.check().expect("an image").1, expected);
        };
        check("me.png", "me.png");
        check("me.svg", "me.png");
        check("../../etc/passwd", "passwd.png");
        check("..", "_..png");
        check("", "unnamed.png");
        check("Bärbel <1>.JPG", "B_rbel__1_.png");
        check(&"x".repeat(300), &format!("{}.png", "x".repeat(100)));
    }

    #[test]
    fn the_path_names_the_owner() {
        assert_eq!(AvatarOwner::Project(ProjectId::new(7)).path("a.png"), "/uploads/-/system/project/avatar/7/a.png");
        assert_eq!(path_of_user(UserId::new(1), "ann", Some("a.png")), "/uploads/-/system/user/avatar/1/a.png");
        assert_eq!(path_of_user(UserId::new(1), "ann", None), identicon_path("ann"));
    }
}
