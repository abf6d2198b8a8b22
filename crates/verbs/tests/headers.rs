//! The declarations of this crate against the headers and libraries of rdma-core, where these are installed.

use std::fmt::Write;
use std::mem::{align_of, offset_of, size_of};
use std::path::Path;
use std::process::Command;

use verbs::{abi, numbers};

const PREFIX: &str = "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n\
                      int main(void) {\n";

/// A line for each size and offset: the name in C, an expression of C, and the value here.
fn layout() -> Vec<(String, String, usize)> {
    let mut lines = Vec::new();
    macro_rules! structure {
        ($rust:ident $c:literal: $($field:ident $(as $name:literal)?),* $(,)?) => {
            lines.push(($c.to_owned(), format!("sizeof(struct {})", $c), size_of::<abi::$rust>()));
            lines.push((format!("{} alignment", $c), format!("_Alignof(struct {})", $c), align_of::<abi::$rust>()));
            $(
                #[allow(unused_mut, unused_assignments)]
                let mut name = stringify!($field);
                $(name = $name;)?
                lines.push((
                    format!("{}.{name}", $c),
                    format!("offsetof(struct {}, {name})", $c),
                    offset_of!(abi::$rust, $field),
                ));
            )*
        };
    }
    structure!(Device "ibv_device": ops as "_ops", node_type, transport_type, name, dev_name, dev_path, ibdev_path);
    structure!(Context "ibv_context": device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat);
    structure!(ContextOps "ibv_context_ops": poll_cq, req_notify_cq, post_srq_recv, post_send, post_recv,
        after_post_recv as "_compat_create_ah");
    structure!(Pd "ibv_pd": context, handle);
    structure!(Mr "ibv_mr": context, pd, addr, length, handle, lkey, rkey);
    structure!(CompChannel "ibv_comp_channel": context, fd, refcnt);
    structure!(Cq "ibv_cq": context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed,
        async_events_completed);
    structure!(Srq "ibv_srq": context, srq_context, pd, handle, mutex, cond, events_completed);
    structure!(SrqAttr "ibv_srq_attr": max_wr, max_sge, srq_limit);
    structure!(SrqInitAttr "ibv_srq_init_attr": srq_context, attr);
    structure!(Qp "ibv_qp": context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex, cond,
        events_completed);
    structure!(QpCap "ibv_qp_cap": max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data);
    structure!(QpInitAttr "ibv_qp_init_attr": qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all);
    structure!(Sge "ibv_sge": addr, length, lkey);
    structure!(SendWr "ibv_send_wr": wr_id, next, sg_list, num_sge, opcode, send_flags, invalidate_rkey, wr,
        xrc_remote_srqn as "qp_type", unused as "bind_mw");
    lines.push((
        "ibv_send_wr.wr.rdma.rkey".to_owned(),
        "offsetof(struct ibv_send_wr, wr.rdma.rkey)".to_owned(),
        offset_of!(abi::SendWr, wr) + offset_of!(abi::RemoteRange, rkey),
    ));
    structure!(RecvWr "ibv_recv_wr": wr_id, next, sg_list, num_sge);
    structure!(Wc "ibv_wc": wr_id, status, opcode, vendor_err, byte_len, invalidated_rkey, qp_num, src_qp, wc_flags,
        pkey_index, slid, sl, dlid_path_bits);
    structure!(DeviceAttr "ibv_device_attr": fw_ver, node_guid, max_mr_size, vendor_id, max_qp, max_qp_wr, max_sge,
        max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, atomic_cap,
        max_srq, max_srq_wr, max_srq_sge, max_pkeys, local_ca_ack_delay, phys_port_cnt);
    structure!(AsyncEvent "ibv_async_event": element, event_type);
    structure!(EventChannel "rdma_event_channel": fd);
    structure!(Addr "rdma_addr": src_storage, dst_storage, addr);
    structure!(Route "rdma_route": addr, path_rec, num_paths);
    structure!(CmId "rdma_cm_id": verbs, channel, context, qp, route, ps, port_num, event, send_cq_channel, send_cq,
        recv_cq_channel, recv_cq, srq, pd, qp_type);
    structure!(ConnParam "rdma_conn_param": private_data, private_data_len, responder_resources, initiator_depth,
        flow_control, retry_count, rnr_retry_count, srq, qp_num);
    structure!(CmEvent "rdma_cm_event": id, listen_id, event, status, param);
    lines
}

/// Says that a test does nothing here; what the rigs could have installed must be there under CI.
fn skip(reason: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{reason}: under CI this is a failure");
    println!("skipped: {}: {reason}", std::thread::current().name().unwrap_or("test"));
}

#[test]
fn sizes_offsets_and_numbers_are_those_of_the_headers() {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() || !Path::new("/usr/include/infiniband/verbs.h").exists() {
        return skip("libibverbs-dev and librdmacm-dev are not installed (tests/needs installs them)");
    }
    let mut expected = String::new();
    let mut program = PREFIX.to_owned();
    let numbers = numbers::ALL.iter().map(|&(name, value)| (name.to_owned(), name.to_owned(), value as usize));
    for (name, expression, value) in layout().into_iter().chain(numbers) {
        writeln!(expected, "{name} {value}").expect("a string");
        writeln!(program, "printf(\"{name} %zu\\n\", (size_t)({expression}));").expect("a string");
    }
    program.push_str("return 0;\n}\n");

    let directory = tempfile::tempdir().expect("a directory");
    let (source, binary) = (directory.path().join("layout.c"), directory.path().join("layout"));
    std::fs::write(&source, program).expect("a file");
    let compiled = Command::new("cc").arg("-o").args([&binary, &source]).output().expect("a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&binary).output().expect("the program");
    let in_c = String::from_utf8(output.stdout).expect("text");
    let differences: Vec<_> = in_c.lines().zip(expected.lines()).filter(|(c, rust)| c != rust).collect();
    assert!(differences.is_empty(), "in C and here: {differences:#?}");
    assert_eq!(in_c.lines().count(), expected.lines().count());
}

#[test]
fn every_function_is_in_the_libraries() {
    match verbs::available() {
        Ok(()) => {
            let library = verbs::library().expect("found before");
            // SAFETY: the function takes any number and returns a text that is never freed.
            let text = unsafe { (library.wc_status_str)(numbers::IBV_WC_REM_ACCESS_ERR) };
            // SAFETY: the text is a constant of the library that ends with a NUL.
            assert_eq!(unsafe { std::ffi::CStr::from_ptr(text) }, c"remote access error");
        }
        Err(error) => {
            assert!(!error.to_string().contains('\n'), "{error}");
            assert!(error.reason.contains("cannot open shared object file"), "{error}");
            skip(&error.to_string());
        }
    }
}
