//! The structures of rdma-core as its headers lay them out: infiniband/verbs.h (ABI of symbols IBVERBS_1.1) and
//! rdma/rdma_cma.h (RDMACM_1.0). The names of types are those of the headers without the prefix, and fields have the
//! names of the headers. The test `headers` holds sizes and offsets against the headers.
//!
//! Enumerations are plain numbers here: a later library may return a number that these headers do not name.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// A type that this crate only points to.
macro_rules! opaque {
    ($($(#[$attribute:meta])* $name:ident;)*) => {
        $($(#[$attribute])*
        #[repr(C)]
        pub struct $name {
            _private: [u8; 0],
        })*
    };
}

opaque! {
    /// struct ibv_sa_path_rec.
    PathRecord;
    /// A function of [`ContextOps`] that this crate does not call.
    Uncalled;
}

/// struct ibv_device.
#[repr(C)]
pub struct Device {
    pub ops: [*mut Uncalled; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub dev_name: [c_char; 64],
    pub dev_path: [c_char; 256],
    pub ibdev_path: [c_char; 256],
}

/// struct ibv_context.
#[repr(C)]
pub struct Context {
    pub device: *mut Device,
    pub ops: ContextOps,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: libc::pthread_mutex_t,
    pub abi_compat: *mut c_void,
}

/// struct ibv_context_ops: the functions of the driver. The inline functions ibv_poll_cq, ibv_post_send and their like
/// call through it.
#[repr(C)]
pub struct ContextOps {
    pub before_poll_cq: [*mut Uncalled; 11],
    pub poll_cq: unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int,
    pub req_notify_cq: unsafe extern "C" fn(*mut Cq, c_int) -> c_int,
    pub before_post_srq_recv: [*mut Uncalled; 7],
    pub post_srq_recv: unsafe extern "C" fn(*mut Srq, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    pub before_post_send: [*mut Uncalled; 4],
    pub post_send: unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int,
    pub post_recv: unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int,
    pub after_post_recv: [*mut Uncalled; 5],
}

/// struct ibv_pd.
#[repr(C)]
pub struct Pd {
    pub context: *mut Context,
    pub handle: u32,
}

/// struct ibv_mr.
#[repr(C)]
pub struct Mr {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// struct ibv_comp_channel.
#[repr(C)]
pub struct CompChannel {
    pub context: *mut Context,
    pub fd: c_int,
    pub refcnt: c_int,
}

/// struct ibv_cq.
#[repr(C)]
pub struct Cq {
    pub context: *mut Context,
    pub channel: *mut CompChannel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub comp_events_completed: u32,
    pub async_events_completed: u32,
}

/// struct ibv_srq.
#[repr(C)]
pub struct Srq {
    pub context: *mut Context,
    pub srq_context: *mut c_void,
    pub pd: *mut Pd,
    pub handle: u32,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub events_completed: u32,
}

/// struct ibv_srq_attr.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct SrqAttr {
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}

/// struct ibv_srq_init_attr.
#[repr(C)]
pub struct SrqInitAttr {
    pub srq_context: *mut c_void,
    pub attr: SrqAttr,
}

/// struct ibv_qp.
#[repr(C)]
pub struct Qp {
    pub context: *mut Context,
    pub qp_context: *mut c_void,
    pub pd: *mut Pd,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut Srq,
    pub handle: u32,
    pub qp_num: u32,
    pub state: c_uint,
    pub qp_type: c_uint,
    pub mutex: libc::pthread_mutex_t,
    pub cond: libc::pthread_cond_t,
    pub events_completed: u32,
}

/// struct ibv_qp_cap.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// struct ibv_qp_init_attr.
#[repr(C)]
pub struct QpInitAttr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut Srq,
    pub cap: QpCap,
    pub qp_type: c_uint,
    pub sq_sig_all: c_int,
}

/// struct ibv_sge.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// struct ibv_send_wr, with the variant `rdma` of its union `wr`.
#[repr(C)]
pub struct SendWr {
    pub wr_id: u64,
    pub next: *mut SendWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    pub opcode: c_uint,
    pub send_flags: c_uint,
    /// Immediate data (big-endian), or the key that the peer is to invalidate.
    pub invalidate_rkey: u32,
    pub wr: RdmaOrOther,
    /// For extended connections, which this crate does not use.
    pub xrc_remote_srqn: u32,
    /// For memory windows and segmentation offload, which this crate does not use.
    pub unused: [u64; 6],
}

/// The union `wr` of struct ibv_send_wr.
#[derive(Clone, Copy)]
#[repr(C)]
pub union RdmaOrOther {
    pub rdma: RemoteRange,
    /// The size of the longest variant, which is that of atomic operations.
    pub longest: [u64; 4],
}

/// The memory of a peer that an RDMA READ or WRITE starts at.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RemoteRange {
    pub remote_addr: u64,
    pub rkey: u32,
}

/// struct ibv_recv_wr.
#[repr(C)]
pub struct RecvWr {
    pub wr_id: u64,
    pub next: *mut RecvWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}

/// struct ibv_wc.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Wc {
    pub wr_id: u64,
    pub status: c_uint,
    pub opcode: c_uint,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// Immediate data (big-endian), or the key that the peer has invalidated: see `wc_flags`.
    pub invalidated_rkey: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// struct ibv_device_attr.
#[repr(C)]
pub struct DeviceAttr {
    pub fw_ver: [u8; 64],
    /// Big-endian.
    pub node_guid: u64,
    /// Big-endian.
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    /// RDMA READs of peers that one queue pair serves at a time.
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    /// RDMA READs that one queue pair may have in flight.
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: c_uint,
    pub max_ee: c_int,
    pub max_rdd: c_int,
    pub max_mw: c_int,
    pub max_raw_ipv6_qp: c_int,
    pub max_raw_ethy_qp: c_int,
    pub max_mcast_grp: c_int,
    pub max_mcast_qp_attach: c_int,
    pub max_total_mcast_qp_attach: c_int,
    pub max_ah: c_int,
    pub max_fmr: c_int,
    pub max_map_per_fmr: c_int,
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

/// struct ibv_async_event.
#[repr(C)]
pub struct AsyncEvent {
    /// A pointer to the queue or the queue pair, or the number of the port, as `event_type` says.
    pub element: *mut c_void,
    pub event_type: c_uint,
}

/// struct rdma_event_channel.
#[repr(C)]
pub struct EventChannel {
    pub fd: c_int,
}

/// struct rdma_addr.
#[repr(C)]
pub struct Addr {
    pub src_storage: libc::sockaddr_storage,
    pub dst_storage: libc::sockaddr_storage,
    /// Addresses of InfiniBand: two global identifiers and a key of a partition.
    pub addr: [u64; 5],
}

/// struct rdma_route.
#[repr(C)]
pub struct Route {
    pub addr: Addr,
    pub path_rec: *mut PathRecord,
    pub num_paths: c_int,
}

/// struct rdma_cm_id.
#[repr(C)]
pub struct CmId {
    pub verbs: *mut Context,
    pub channel: *mut EventChannel,
    pub context: *mut c_void,
    pub qp: *mut Qp,
    pub route: Route,
    pub ps: c_uint,
    pub port_num: u8,
    pub event: *mut CmEvent,
    pub send_cq_channel: *mut CompChannel,
    pub send_cq: *mut Cq,
    pub recv_cq_channel: *mut CompChannel,
    pub recv_cq: *mut Cq,
    pub srq: *mut Srq,
    pub pd: *mut Pd,
    pub qp_type: c_uint,
}

/// struct rdma_conn_param.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ConnParam {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

/// struct rdma_cm_event.
#[repr(C)]
pub struct CmEvent {
    pub id: *mut CmId,
    pub listen_id: *mut CmId,
    pub event: c_uint,
    pub status: c_int,
    pub param: CmEventParam,
}

/// The union `param` of struct rdma_cm_event.
#[derive(Clone, Copy)]
#[repr(C)]
pub union CmEventParam {
    pub conn: ConnParam,
    /// The size of struct rdma_ud_param: for datagrams, which this crate does not use.
    pub datagram: [u64; 7],
}
