//! The numbers of infiniband/verbs.h and rdma/rdma_cma.h that transports use, by the names of those headers.

/// Declares constants, and the list of them for the test against the headers.
macro_rules! numbers {
    ($($name:ident = $value:expr;)*) => {
        $(#[doc = concat!("`", stringify!($name), "`.")]
        pub const $name: u32 = $value;)*

        /// All names and values.
        pub const ALL: &[(&str, u32)] = &[$((stringify!($name), $name)),*];
    };
}

numbers! {
    IBV_TRANSPORT_IWARP = 1;

    IBV_QPT_RC = 2;

    IBV_ACCESS_LOCAL_WRITE = 1;
    IBV_ACCESS_REMOTE_WRITE = 2;
    IBV_ACCESS_REMOTE_READ = 4;

    IBV_WR_RDMA_WRITE = 0;
    IBV_WR_SEND = 2;
    IBV_WR_RDMA_READ = 4;
    IBV_WR_LOCAL_INV = 7;
    IBV_WR_SEND_WITH_INV = 9;

    IBV_SEND_FENCE = 1;
    IBV_SEND_SIGNALED = 2;
    IBV_SEND_SOLICITED = 4;
    IBV_SEND_INLINE = 8;

    IBV_WC_SUCCESS = 0;
    IBV_WC_LOC_LEN_ERR = 1;
    IBV_WC_LOC_QP_OP_ERR = 2;
    IBV_WC_LOC_PROT_ERR = 4;
    IBV_WC_WR_FLUSH_ERR = 5;
    IBV_WC_LOC_ACCESS_ERR = 8;
    IBV_WC_REM_INV_REQ_ERR = 9;
    IBV_WC_REM_ACCESS_ERR = 10;
    IBV_WC_REM_OP_ERR = 11;
    IBV_WC_RETRY_EXC_ERR = 12;
    IBV_WC_RNR_RETRY_EXC_ERR = 13;

    IBV_WC_SEND = 0;
    IBV_WC_RDMA_WRITE = 1;
    IBV_WC_RDMA_READ = 2;
    IBV_WC_RECV = 128;
    IBV_WC_WITH_INV = 8;

    IBV_EVENT_QP_FATAL = 1;
    IBV_EVENT_DEVICE_FATAL = 8;
    IBV_EVENT_SRQ_ERR = 14;
    IBV_EVENT_SRQ_LIMIT_REACHED = 15;
    IBV_EVENT_QP_LAST_WQE_REACHED = 16;

    RDMA_PS_TCP = 0x106;
    RDMA_CM_EVENT_ADDR_RESOLVED = 0;
    RDMA_CM_EVENT_ADDR_ERROR = 1;
    RDMA_CM_EVENT_ROUTE_RESOLVED = 2;
    RDMA_CM_EVENT_ROUTE_ERROR = 3;
    RDMA_CM_EVENT_CONNECT_REQUEST = 4;
    RDMA_CM_EVENT_CONNECT_RESPONSE = 5;
    RDMA_CM_EVENT_CONNECT_ERROR = 6;
    RDMA_CM_EVENT_UNREACHABLE = 7;
    RDMA_CM_EVENT_REJECTED = 8;
    RDMA_CM_EVENT_ESTABLISHED = 9;
    RDMA_CM_EVENT_DISCONNECTED = 10;
    RDMA_CM_EVENT_DEVICE_REMOVAL = 11;
    RDMA_CM_EVENT_ADDR_CHANGE = 14;
    RDMA_CM_EVENT_TIMEWAIT_EXIT = 15;
}
