//! The system calls that a command may not make: those that could undo the sandbox, and sockets.

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

/// The bit by which x86-64 marks a call of its x32 form. No machine has so many calls.
const X32: u32 = 0x4000_0000;

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
    let x32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
    program.push(step(x32, X32, distance(0)? + 3)?);
    // Its flags lie in memory, which a filter cannot read. The C library uses `clone` instead.
    program.push(step(is, u32::try_from(libc::SYS_clone3)?, distance(0)? + 2)?);
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
    if !policy.network {
        sockets(policy, &mut rules)?;
    }
    Ok(rules)
}

/// Adds the refusals of sockets for a command that may not use the whole network.
fn sockets(policy: &Policy, rules: &mut Rules) -> Result<(), Box<dyn Error>> {
    let is = |argument, operator, value: i32| {
        let value = u64::try_from(value)?;
        Ok::<_, Box<dyn Error>>(SeccompCondition::new(argument, Dword, operator, value)?)
    };
    let of_type = |kind| is(1, MaskedEq(SOCKET_TYPES), kind);
    // Datagrams need no connection: a file of a socket of another program would be enough.
    rules.insert(libc::SYS_socketpair, vec![SeccompRule::new(vec![of_type(libc::SOCK_DGRAM)?])?]);
    let refused = match (policy.namespaces, policy.hosts.as_slice()) {
        // The sockets of other programs could not be hidden, so a command gets none at all.
        (Namespaces::None, _) => Vec::new(),
        (Namespaces::Mounts | Namespaces::Processes, []) => {
            // A socket of another program is a file, and Landlock does not see that it is reached.
            rules.insert(libc::SYS_connect, Vec::new());
            vec![vec![is(0, Ne, libc::AF_UNIX)?], vec![of_type(libc::SOCK_DGRAM)?]]
        }
        // Streams of the internet, which lead nowhere but to the proxy. Nothing else can connect then.
        (Namespaces::Mounts | Namespaces::Processes, _) => {
            let others = (0..=0xf).filter(|kind| *kind != libc::SOCK_STREAM);
            let others = others.map(|kind| Ok(vec![of_type(kind)?]));
            let mut refused = others.collect::<Result<Vec<_>, Box<dyn Error>>>()?;
            refused.push(vec![is(0, Ne, libc::AF_INET)?, is(0, Ne, libc::AF_INET6)?]);
            refused
        }
    };
    let refused: Result<Vec<_>, _> = refused.into_iter().map(SeccompRule::new).collect();
    rules.insert(libc::SYS_socket, refused?);
    Ok(())
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
                libc::SYS_clone3 => missing,
                call if DENIED.contains(&call) => refused,
                _ => None,
            };
            assert_eq!(run(&program, call), expected, "{call}");
            assert_eq!(run(&program, call | X32), missing, "{call}");
        }
    }
}
