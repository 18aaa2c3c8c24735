//! The system calls that a command may not make: those that could undo the sandbox, and sockets.

use std::collections::BTreeMap;
use std::error::Error;

use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls that look into or change other processes, the kernel, mounts and namespaces, or that do
/// other calls where no filter sees them.
const DENIED: &[i64] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_process_madvise,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_fspick,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_bpf,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_open_by_handle_at,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_syslog,
];

/// Calls that change the limits or the scheduling of a process, with the argument that names it.
const OTHERS: [(i64, u8); 7] = [
    (libc::SYS_prlimit64, 0),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_setpriority, 1),
    (libc::SYS_ioprio_set, 1),
];

/// The bits of the second argument of `socket` that hold the type.
const SOCKET_TYPES: u64 = 0xf;

/// The flags of `clone` that make a namespace.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// Requests of `ioctl` that type into a terminal.
const TYPING: [u64; 2] = [libc::TIOCSTI, 0x541c];

/// The bit by which x86-64 marks a call of its x32 form.
const X32: i64 = 0x4000_0000;

/// Installs the filters. Without namespaces the sockets of other programs could not be hidden, so
/// a command gets none at all then.
pub(super) fn install(network: bool, namespaces: bool) -> Result<(), Box<dyn Error>> {
    let refuse = SeccompAction::Errno(u32::try_from(libc::EPERM)?);
    apply(denied(network, namespaces)?, refuse)?;
    // Its flags lie in memory, which a filter cannot read. The C library uses `clone` instead.
    let missing = SeccompAction::Errno(u32::try_from(libc::ENOSYS)?);
    apply(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), missing)
}

fn denied(network: bool, namespaces: bool) -> Result<Rules, Box<dyn Error>> {
    let rule = |argument, operator, value| {
        SeccompRule::new(vec![SeccompCondition::new(argument, Dword, operator, value)?])
    };
    let mut rules: Rules = DENIED.iter().map(|call| (*call, Vec::new())).collect();
    let flags = NAMESPACES.map(|flag| u64::from(flag.cast_unsigned()));
    let flags: Result<_, _> = flags.map(|flag| rule(0, MaskedEq(flag), flag)).into_iter().collect();
    rules.insert(libc::SYS_clone, flags?);
    let typing: Result<_, _> = TYPING.map(|request| rule(1, Eq, request)).into_iter().collect();
    rules.insert(libc::SYS_ioctl, typing?);
    // Of these the first or the second argument names the process; 0 is the caller.
    for (call, argument) in OTHERS {
        rules.insert(call, vec![rule(argument, Ne, 0)?]);
    }
    let local = u64::try_from(libc::AF_UNIX)?;
    let datagrams = u64::try_from(libc::SOCK_DGRAM)?;
    match (network, namespaces) {
        (true, _) => {}
        (false, true) => {
            // Datagrams need no connection.
            let datagrams = rule(1, MaskedEq(SOCKET_TYPES), datagrams)?;
            rules.insert(libc::SYS_socket, vec![rule(0, Ne, local)?, datagrams]);
            // A socket of another program is a file, and Landlock does not see that it is reached.
            rules.insert(libc::SYS_connect, Vec::new());
        }
        (false, false) => drop(rules.insert(libc::SYS_socket, Vec::new())),
    }
    Ok(rules)
}

fn apply(mut rules: Rules, action: SeccompAction) -> Result<(), Box<dyn Error>> {
    if cfg!(target_arch = "x86_64") {
        let x32: Vec<_> = rules.iter().map(|(call, rules)| (call | X32, rules.clone())).collect();
        rules.extend(x32);
    }
    let machine = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, machine)?;
    let program: seccompiler::BpfProgram = filter.try_into()?;
    Ok(seccompiler::apply_filter(&program)?)
}
