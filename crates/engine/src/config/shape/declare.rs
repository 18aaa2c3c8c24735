//! The macros that declare configuration keys, each key once with all its properties.

/// Declares sections: for each section a struct, its reader, and the table of its keys.
///
/// A key is `name: Type, KIND;`, or with a default `name: Type = default, KIND;`. After the kind,
/// `=> "..."` describes the value of an absent key in words, if that depends on something else.
/// Then `gives` lists the codes of the diagnostics that code outside the check gives at the key.
/// Keys of `notes` are checked but have no effect. Keys of `later` are refused; those with a type
/// are still read, so that no further diagnostics follow from their absence. Keys of `idle` are
/// refused, but earlier versions accepted them.
macro_rules! sections {
    ($(
        $(#[$about:meta])+
        $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $key:ident: $type:ty $(= $default:expr)?, $kind:expr
                    $(=> $absent:literal)? $(, gives $($code:literal),+)?;
            )*
        }
        $(notes { $($(#[doc = $note_doc:literal])+ $note:ident, $note_kind:expr;)+ })?
        $(later {
            $(
                $(#[doc = $later_doc:literal])+
                $later:ident $(: $later_type:ty)? $(, $later_kind:expr)?;
            )+
        })?
        $(idle { $($(#[doc = $idle_doc:literal])+ $idle:ident;)+ })?
    )+) => { $(
        $(#[$about])+
        #[derive(Debug)]
        pub(in crate::config) struct $name {
            $($(#[doc = $doc])+ pub(in crate::config) $key: sections!(@field $type $(= $default)?),)*
            $($($(pub(in crate::config) $later: sections!(@field $later_type),)?)+)?
        }

        impl crate::config::shape::Section for $name {
            const KEYS: crate::config::shape::Keys = &[&[
                $(sections!(
                    @key Yes $key [$($doc)+] $kind, [$($default, $type)?] [$($absent)?]
                    [$($($code),+)?]
                ),)*
                $($(sections!(@key Yes $note [$($note_doc)+] $note_kind, [] [] []),)+)?
                $($(sections!(
                    @key Later $later [$($later_doc)+] sections!(@kind $($later_kind)?), [] [] []
                ),)+)?
                $($(sections!(@key Idle $idle [$($idle_doc)+] sections!(@kind), [] [] []),)+)?
            ]];

            fn read_keys(dict: &figment::value::Dict, places: &crate::config::tree::Places) -> Self {
                // A section without keys would not use the arguments.
                let _ = (dict, places);
                Self {
                    $($key: crate::config::shape::field(dict, sections!(@name $key), places)
                        $(.filled(|| $default))?,)*
                    $($($($later: crate::config::shape::field::<$later_type>(
                        dict, sections!(@name $later), places,
                    ),)?)+)?
                }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                crate::config::shape::absent()
            }
        }
    )+ };
    (@field $type:ty = $default:expr) => { crate::config::shape::Field<$type> };
    (@field $type:ty) => { crate::config::shape::Field<Option<$type>> };
    (@kind $kind:expr) => { $kind };
    (@kind) => { crate::config::shape::Kind::Any };
    (@name $key:ident) => { crate::config::shape::bare(stringify!($key)) };
    (@default $default:expr, $type:ty) => {
        Some(|| <$type as crate::config::shape::Read>::show(&$default))
    };
    (@default) => { None };
    (@absent $absent:literal) => { Some($absent) };
    (@absent) => { None };
    (
        @key $built:ident $key:ident [$($doc:literal)+] $kind:expr,
        [$($default:tt)*] [$($absent:literal)?] [$($code:literal),*]
    ) => {
        crate::config::shape::Key {
            name: sections!(@name $key),
            doc: concat!($($doc, "\n"),+),
            kind: $kind,
            default: sections!(@default $($default)*),
            absent: sections!(@absent $($absent)?),
            codes: &[$($code),*],
            built: crate::config::shape::Built::$built,
        }
    };
}

/// Declares the constants of the presets. Each preset has other constants, so the keys that are set
/// become a list with their names and not fields of a struct.
macro_rules! constants {
    (
        $(#[$about:meta])+
        $name:ident { $($(#[doc = $doc:literal])+ $key:ident: $type:ty, $kind:expr;)+ }
    ) => {
        $(#[$about])+
        #[derive(Debug, Default)]
        pub(in crate::config) struct $name(pub(in crate::config) Vec<crate::config::shape::Constant>);

        impl crate::config::shape::Section for $name {
            const KEYS: crate::config::shape::Keys = &[&[$(sections!(
                @key Yes $key [$($doc)+] $kind, [] ["from the preset"]
                ["unused_key", "bad_value"]
            ),)+]];

            fn read_keys(dict: &figment::value::Dict, places: &crate::config::tree::Places) -> Self {
                let all = [$({
                    let name = sections!(@name $key);
                    crate::config::shape::field::<$type>(dict, name, places).as_constant(name)
                },)+];
                Self(all.into_iter().flatten().collect())
            }
        }
    };
}

/// Implements reading for enums whose variants are words of the file, written as serde writes them.
macro_rules! words {
    ($($word:ty)+) => { $(
        impl crate::config::shape::Read for $word {
            fn read(
                value: &figment::value::Value,
                places: &crate::config::tree::Places,
            ) -> Option<Self> {
                serde_json::from_value(places.text(value)?.into()).ok()
            }

            fn show(&self) -> serde_json::Value {
                serde_json::to_value(self).unwrap_or_default()
            }
        }
    )+ };
}

pub(in crate::config) use {constants, sections, words};
