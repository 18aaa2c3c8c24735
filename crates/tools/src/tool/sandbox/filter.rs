//! The system calls that a command may not make: those that could undo the sandbox, sockets, and those
//! that would give its rights to whoever runs a file.

use std::collections::BTreeMap;
use std::error::Error;

use seccompiler::SeccompCmpArgLen::Dword;
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
    sock_filter,
};

use super::{Namespaces, Policy};

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
    LSM_SET_SELF_ATTR,
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

/// Calls of [`OTHERS`] that can name all processes of the user, with the value of their first argument that does.
const OF_USER: [(i64, u64); 2] =
    [(libc::SYS_setpriority, libc::PRIO_USER as u64), (libc::SYS_ioprio_set, IOPRIO_WHO_USER)];

/// `IOPRIO_WHO_USER` of `linux/ioprio.h`.
const IOPRIO_WHO_USER: u64 = 3;

/// Calls for System V objects. Without a namespace they reach those of other programs.
const SYSTEM_V: [i64; 12] = [
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_shmdt,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
];

/// Calls whose arguments lie in memory, which a filter cannot read. They are told to be missing, so that
/// programs fall back on calls that it can read: `clone` and `openat`.
const UNREADABLE: [i64; 2] = [libc::SYS_clone3, libc::SYS_openat2];

/// The call `fchmodat2`, which has this number on all machines. The C library does not name it for each.
const FCHMODAT2: i64 = 452;

/// The call `lsm_set_self_attr`, which changes by what rules of the system a process is confined. The C library
/// does not name it for each machine.
const LSM_SET_SELF_ATTR: i64 = 460;

/// Calls that change the mode of a file, with the argument that is the mode.
const MODES: &[(i64, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (FCHMODAT2, 2),
    (libc::SYS_mknodat, 2),
];

/// Calls that make a file if their flags say so, with the arguments that are the flags and the mode.
const OPENING: &[(i64, u8, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1, 2),
    (libc::SYS_openat, 2, 3),
];

/// The flags by which such a call makes a file. The mode means nothing without one of them.
const CREATING: [i32; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];

/// The bits of the second argument of `socket` that hold the type.
const SOCKET_TYPES: u64 = 0xf;

/// Types of sockets that are of use only when they are connected: nothing is sent to a name.
const CONNECTED: [i32; 2] = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET];

/// Families of sockets for a command that may use the whole network. Of the others, some lead past the network
/// (to the host of a virtual machine, to devices), and all are parts of the kernel that no tool needs.
const FAMILIES: [i32; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// The type by which a socket of the internet is one of packets. It is obsolete.
const PACKETS: i32 = 10;

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

/// The first number of a call that was not looked at when this filter was written: of Linux 6.14,
/// `removexattrat` (466) is the last. All machines have the same numbers from 424 on. What the kernel learns
/// later is told to be missing, as an older kernel says, and so are the calls of the x32 form of x86-64, whose
/// numbers are greater still.
const LATER: u32 = 467;

/// Installs the filter.
pub(super) fn install(policy: &Policy) -> Result<(), Box<dyn Error>> {
    let refused = SeccompAction::Errno(u32::try_from(libc::EPERM)?);
    let machine = TargetArch::try_from(std::env::consts::ARCH)?;
    let rules = conditional(policy)?;
    let others = SeccompFilter::new(rules, SeccompAction::Allow, refused.clone(), machine)?;
    let mut program = always(&refused)?;
    program.extend(BpfProgram::try_from(others)?);
    Ok(seccompiler::apply_filter(&program)?)
}

/// Returns the part of the filter that looks at nothing but the number of a call. It comes first, and is
/// written by hand: an instruction for each call, where the library writes a chain of them. The kernel
/// runs a filter once for each number of a call when it is installed, so that its length is what it
/// costs. Both parts refuse only, so that their order is free, and the library's ends a process of
/// another machine language.
fn always(refused: &SeccompAction) -> Result<BpfProgram, Box<dyn Error>> {
    let step = |code: u32, k: u32, jt: u8| {
        Ok::<_, Box<dyn Error>>(sock_filter { code: u16::try_from(code)?, jt, jf: 0, k })
    };
    let is = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let end = |action: SeccompAction| step(libc::BPF_RET | libc::BPF_K, action.into(), 0);
    let missing = SeccompAction::Errno(u32::try_from(libc::ENOSYS)?);
    // Behind the calls stand a jump over the two ends, and these.
    let distance = |number: usize| u8::try_from(DENIED.len() - number);
    // The number of the call is the first word of what a filter reads.
    let mut program = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)?];
    let from = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
    let unreadable = u8::try_from(UNREADABLE.len())?;
    program.push(step(from, LATER, distance(0)? + 2 + unreadable)?);
    for (call, left) in UNREADABLE.iter().zip((0..unreadable).rev()) {
        program.push(step(is, u32::try_from(*call)?, distance(0)? + 2 + left)?);
    }
    for (number, call) in DENIED.iter().enumerate() {
        program.push(step(is, u32::try_from(*call)?, distance(number)?)?);
    }
    program.push(step(libc::BPF_JMP | libc::BPF_JA, 2, 0)?);
    program.push(end(refused.clone())?);
    program.push(end(missing)?);
    Ok(program)
}

/// Returns the calls that are refused with some arguments, or to some policies.
fn conditional(policy: &Policy) -> Result<Rules, Box<dyn Error>> {
    let rule = |argument, operator, value| {
        SeccompRule::new(vec![SeccompCondition::new(argument, Dword, operator, value)?])
    };
    let mut rules = Rules::new();
    let flags = NAMESPACES.map(|flag| u64::from(flag.cast_unsigned()));
    let flags: Result<_, _> = flags.map(|flag| rule(0, MaskedEq(flag), flag)).into_iter().collect();
    rules.insert(libc::SYS_clone, flags?);
    let typing: Result<_, _> = TYPING.map(|request| rule(1, Eq, request)).into_iter().collect();
    rules.insert(libc::SYS_ioctl, typing?);
    // Of these the first or the second argument names the process; 0 is the caller.
    for (call, argument) in OTHERS {
        rules.insert(call, vec![rule(argument, Ne, 0)?]);
    }
    for (call, user) in OF_USER {
        rules.entry(call).or_default().push(rule(0, Eq, user)?);
    }
    if policy.namespaces == Namespaces::None {
        rules.extend(SYSTEM_V.map(|call| (call, Vec::new())));
    }
    modes(&mut rules)?;
    match policy.network {
        true => whole_network(&mut rules)?,
        false => sockets(policy, &mut rules)?,
    }
    Ok(rules)
}

/// Adds the refusals of files that give the rights of their owner to whoever runs them: a command that
/// root starts would leave a way to root behind for every user. The bit of the group is refused to root
/// only: a filter cannot tell folders from files, and folders of a team carry it.
fn modes(rules: &mut Rules) -> Result<(), Box<dyn Error>> {
    let bits: &[u32] = match rustix::process::geteuid().is_root() {
        true => &[libc::S_ISUID, libc::S_ISGID],
        false => &[libc::S_ISUID],
    };
    let has = |argument, bit: u32| {
        let bit = u64::from(bit);
        SeccompCondition::new(argument, Dword, MaskedEq(bit), bit)
    };
    for (call, mode) in MODES {
        let refused = bits.iter().map(|bit| SeccompRule::new(vec![has(*mode, *bit)?]));
        rules.insert(*call, refused.collect::<Result<_, _>>()?);
    }
    for (call, flags, mode) in OPENING {
        let pairs = bits.iter().flat_map(|bit| CREATING.map(|flag| (*bit, flag.cast_unsigned())));
        let refused =
            pairs.map(|(bit, flag)| SeccompRule::new(vec![has(*flags, flag)?, has(*mode, bit)?]));
        rules.insert(*call, refused.collect::<Result<_, _>>()?);
    }
    Ok(())
}

/// Returns the condition that an argument of a call is, or is not, a value.
fn argument(
    number: u8,
    operator: seccompiler::SeccompCmpOp,
    value: i32,
) -> Result<SeccompCondition, Box<dyn Error>> {
    Ok(SeccompCondition::new(number, Dword, operator, u64::try_from(value)?)?)
}

/// Returns the refusals of every type of socket but these.
fn types_but(allowed: &[i32]) -> Result<Vec<Vec<SeccompCondition>>, Box<dyn Error>> {
    let refused = (0..=0xf).filter(|kind| !allowed.contains(kind));
    refused.map(|kind| Ok(vec![argument(1, MaskedEq(SOCKET_TYPES), kind)?])).collect()
}

/// Returns the refusal of every family of sockets but these.
fn families_but(allowed: &[i32]) -> Result<Vec<SeccompCondition>, Box<dyn Error>> {
    allowed.iter().map(|family| argument(0, Ne, *family)).collect()
}

fn insert(
    rules: &mut Rules,
    call: i64,
    refused: Vec<Vec<SeccompCondition>>,
) -> Result<(), Box<dyn Error>> {
    let refused: Result<Vec<_>, _> = refused.into_iter().map(SeccompRule::new).collect();
    rules.insert(call, refused?);
    Ok(())
}

/// Adds the refusals of sockets for a command that may use the whole network.
fn whole_network(rules: &mut Rules) -> Result<(), Box<dyn Error>> {
    let kind = |kind| argument(1, MaskedEq(SOCKET_TYPES), kind);
    let refused = vec![
        families_but(&FAMILIES)?,
        // The C library asks the kernel for addresses when it looks up a name: `NETLINK_ROUTE`. The others
        // lead to the firewall, to the log of the kernel and to devices.
        vec![argument(0, Eq, libc::AF_NETLINK)?, argument(2, Ne, libc::NETLINK_ROUTE)?],
        vec![argument(0, Eq, libc::AF_INET)?, kind(libc::SOCK_RAW)?],
        vec![argument(0, Eq, libc::AF_INET6)?, kind(libc::SOCK_RAW)?],
        vec![kind(PACKETS)?],
    ];
    insert(rules, libc::SYS_socket, refused)?;
    insert(rules, libc::SYS_socketpair, vec![families_but(&[libc::AF_UNIX])?])
}

/// Adds the refusals of sockets for a command that may not use the whole network.
fn sockets(policy: &Policy, rules: &mut Rules) -> Result<(), Box<dyn Error>> {
    // Datagrams need no connection: a file of a socket of another program would be enough. The kernel takes
    // `SOCK_RAW` for them too.
    let mut pairs = types_but(&CONNECTED)?;
    pairs.push(families_but(&[libc::AF_UNIX])?);
    insert(rules, libc::SYS_socketpair, pairs)?;
    let refused = match (policy.namespaces, policy.hosts.as_slice()) {
        // The sockets of other programs could not be hidden, so a command gets none at all.
        (Namespaces::None, _) => Vec::new(),
        (Namespaces::Mounts | Namespaces::Processes, []) => {
            // A socket of another program is a file, and Landlock does not see that it is reached.
            rules.insert(libc::SYS_connect, Vec::new());
            let mut refused = types_but(&CONNECTED)?;
            refused.push(families_but(&[libc::AF_UNIX])?);
            refused
        }
        // Streams of the internet, which lead nowhere but to the proxy. Nothing else can connect then.
        (Namespaces::Mounts | Namespaces::Processes, _) => {
            let mut refused = types_but(&[libc::SOCK_STREAM])?;
            refused.push(families_but(&[libc::AF_INET, libc::AF_INET6])?);
            refused
        }
    };
    insert(rules, libc::SYS_socket, refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the part of the filter that looks only at the number. Returns its action; `None` if it
    /// leaves the call to the other part.
    fn run(program: &[sock_filter], call: u32) -> Option<u32> {
        let mut at = 0;
        while let Some(step) = program.get(at) {
            let code = u32::from(step.code);
            let jump = |is: bool| usize::from(if is { step.jt } else { step.jf });
            at += 1 + match code {
                0x20 => 0,
                0x15 => jump(call == step.k),
                0x35 => jump(call >= step.k),
                0x05 => usize::try_from(step.k).unwrap(),
                0x06 => return Some(step.k),
                _ => panic!("{code:#x}"),
            };
        }
        None
    }

    #[test]
    fn every_call_that_is_always_denied_is_refused_and_no_other() {
        let refused = SeccompAction::Errno(1);
        let program = always(&refused).unwrap();
        let refused = Some(u32::from(refused));
        let missing = Some(u32::from(SeccompAction::Errno(38)));
        for call in 0..1_000 {
            let expected = match i64::from(call) {
                call if UNREADABLE.contains(&call) => missing,
                call if DENIED.contains(&call) => refused,
                467.. => missing,
                _ => None,
            };
            assert_eq!(run(&program, call), expected, "{call}");
            // The form x32 of a call.
            assert_eq!(run(&program, call | 0x4000_0000), missing, "{call}");
        }
    }
}
