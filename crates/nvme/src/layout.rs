//! Structures as the specifications print them: fields at byte offsets, little endian, all else zero.

/// A value that has a place in a structure.
pub trait Field: Sized {
    /// Bytes that the field takes in a structure.
    const BYTES: usize;
    /// The value in the first [`Field::BYTES`] of `bytes`.
    fn get(bytes: &[u8]) -> Self;
    /// Writes the value into the bytes, little-endian.
    fn put(&self, bytes: &mut [u8]);
}

macro_rules! integers {
    ($($integer:ty)*) => { $(
        impl Field for $integer {
            const BYTES: usize = size_of::<$integer>();
            #[inline(always)]
            fn get(bytes: &[u8]) -> Self {
                let mut value = [0; size_of::<$integer>()];
                value.copy_from_slice(&bytes[..size_of::<$integer>()]);
                <$integer>::from_le_bytes(value)
            }
            #[inline(always)]
            fn put(&self, bytes: &mut [u8]) {
                bytes[..size_of::<$integer>()].copy_from_slice(&self.to_le_bytes());
            }
        }
    )* };
}

integers!(u8 u16 u32 u64 u128);

impl<F: Field + Copy, const N: usize> Field for [F; N] {
    const BYTES: usize = F::BYTES * N;
    #[inline]
    fn get(bytes: &[u8]) -> Self {
        std::array::from_fn(|index| F::get(&bytes[index * F::BYTES..]))
    }
    #[inline]
    fn put(&self, bytes: &mut [u8]) {
        for (index, value) in self.iter().enumerate() {
            value.put(&mut bytes[index * F::BYTES..]);
        }
    }
}

/// True if fields, as (offset, bytes), follow each other without overlap and end within `total`.
pub(crate) const fn in_order(fields: &[(usize, usize)], total: usize) -> bool {
    let (mut index, mut end) = (0, 0);
    while index < fields.len() {
        if fields[index].0 < end {
            return false;
        }
        end = fields[index].0 + fields[index].1;
        index += 1;
    }
    end <= total
}

/// Declares a structure of the wire: `struct Name: BYTES { field: Type = OFFSET, ... }`. Its default is all zeros.
macro_rules! layout {
    ($(#[$meta:meta])* $vis:vis struct $name:ident: $bytes:literal {
        $($(#[$field_meta:meta])* $field:ident: $type:ty = $at:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis struct $name { $($(#[$field_meta])* pub $field: $type,)* }

        impl $name {
            /// Bytes of the structure.
            pub const BYTES: usize = $bytes;

            /// The structure in `bytes`; every pattern of bits is one.
            #[inline]
            pub fn read(bytes: &[u8; $bytes]) -> $name {
                $name { $($field: <$type as $crate::layout::Field>::get(&bytes[$at..]),)* }
            }

            /// The bytes of the structure; zero where it has no field.
            #[inline]
            pub fn write(&self) -> [u8; $bytes] {
                let mut bytes = [0; $bytes];
                $($crate::layout::Field::put(&self.$field, &mut bytes[$at..]);)*
                bytes
            }
        }

        impl Default for $name {
            #[inline]
            fn default() -> $name {
                $name::read(&[0; $bytes])
            }
        }

        impl $crate::layout::Field for $name {
            const BYTES: usize = $bytes;
            #[inline]
            fn get(bytes: &[u8]) -> $name {
                let mut own = [0; $bytes];
                own.copy_from_slice(&bytes[..$bytes]);
                $name::read(&own)
            }
            #[inline]
            fn put(&self, bytes: &mut [u8]) {
                bytes[..$bytes].copy_from_slice(&self.write());
            }
        }

        const _: () = assert!($crate::layout::in_order(
            &[$(($at, <$type as $crate::layout::Field>::BYTES)),*], $bytes));
    };
}
