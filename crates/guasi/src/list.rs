//! Requests in order of priority, first in first out within one priority; any of them can be taken out.
//!
//! The links lie in the requests: the lists never allocate to add a request, so queueing never fails.

use std::ptr;

use crate::request::{Links, Request};

/// One list per priority. The lock around it guards the links of every request in it.
pub(crate) struct Lists {
    lists: Box<[List]>,
    len: usize,
}

#[derive(Clone)]
struct List {
    first: *mut Request,
    last: *mut Request,
}

// SAFETY: the lists own the requests that they link; a request may be handed to any thread.
unsafe impl Send for Lists {}

impl Lists {
    /// Empty lists for priorities 0..priorities.
    pub fn new(priorities: usize) -> Lists {
        let empty = List { first: ptr::null_mut(), last: ptr::null_mut() };
        Lists { lists: vec![empty; priorities].into_boxed_slice(), len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Appends a request.
    ///
    /// # Safety
    /// The request is valid, in no list, and its priority is below the number of lists.
    pub unsafe fn push(&mut self, request: *mut Request) {
        // SAFETY: the caller passes a valid request, as the contract of this function says.
        let priority = unsafe { (*request).priority };
        let list = &mut self.lists[priority as usize];
        // SAFETY: the caller passes a valid request, and the lock around these lists guards its links.
        let links = unsafe { links(request) };
        *links = Links { previous: list.last, next: ptr::null_mut() };
        if list.last.is_null() {
            list.first = request;
        } else {
            // SAFETY: the last of the list is valid while it is linked.
            unsafe { self::links(list.last) }.next = request;
        }
        list.last = request;
        self.len += 1;
    }

    /// The first request of the most urgent priority that has one.
    pub fn pop(&mut self) -> Option<*mut Request> {
        let request = self.lists.iter().find(|list| !list.first.is_null())?.first;
        // SAFETY: the request is the first of one of these lists, hence linked here.
        unsafe { self.remove(request) };
        Some(request)
    }

    /// Takes a request out.
    ///
    /// # Safety
    /// The request is linked in these lists.
    pub unsafe fn remove(&mut self, request: *mut Request) {
        // SAFETY: linked requests are valid.
        let priority = unsafe { (*request).priority };
        let list = &mut self.lists[priority as usize];
        // SAFETY: linked requests are valid, and the lock around these lists guards their links.
        let Links { previous, next } = *unsafe { links(request) };
        if previous.is_null() {
            list.first = next;
        } else {
            // SAFETY: a neighbour is linked, hence valid.
            unsafe { links(previous) }.next = next;
        }
        if next.is_null() {
            list.last = previous;
        } else {
            // SAFETY: a neighbour is linked, hence valid.
            unsafe { links(next) }.previous = previous;
        }
        self.len -= 1;
    }
}

/// # Safety
/// `request` is valid and the caller holds the lock of the list that it is, or is about to be, linked in.
unsafe fn links<'a>(request: *mut Request) -> &'a mut Links {
    // SAFETY: the caller passes a valid request, as the contract of this function says.
    let cell = unsafe { &(*request).links };
    // SAFETY: the caller holds the list's lock, which makes this the only reference.
    unsafe { &mut *cell.get() }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::call::Call;

    fn request(priority: u32) -> *mut Request {
        Box::into_raw(Box::new(Request::new(ptr::null(), priority, Call::Nothing)))
    }

    #[test]
    fn urgent_first_then_in_order_and_any_can_leave() {
        let mut lists = Lists::new(2);
        let all: Vec<_> = [1, 0, 1, 0, 1].map(request).to_vec();
        for &request in &all {
            // SAFETY: the requests are fresh, and their priorities are 0 and 1.
            unsafe { lists.push(request) };
        }
        // SAFETY: the request was linked above.
        unsafe { lists.remove(all[2]) };
        let order: Vec<_> = std::iter::from_fn(|| lists.pop()).collect();
        assert_eq!(order, [all[1], all[3], all[0], all[4]]);
        assert_eq!(lists.len(), 0);
        for request in all {
            // SAFETY: the request is in no list any more.
            unsafe { crate::request::free(request) };
        }
    }
}
