//! Rules of the sentences that engineers and their agents write.

/// Rules: a name, and the texts that it can stand for.
pub(crate) const RULES: &[(&str, &[&str])] = &[
    // What people ask for.
    (
        "symptom",
        &[
            "`{symbol}` in {path} {trouble}<, at least <since the last release|on the staging machine|when {circumstance}>|>.",
            "<since {day}|for two weeks|after the upgrade|lately> {who} <see|report|complain about> {result}<: `{symbol}` {trouble}|, and it <seems|looks> like `{symbol}` {trouble}|>.",
            "when {circumstance}, `{symbol}` <from|of|in> {path} {trouble}.",
            "{path} <is|has become> a mess<: |, because >`{symbol}` {trouble} and `{other}` <has to work around it|repeats half of it|relies on that>.",
            "<we|I> <want|need|would like> `{symbol}` to <support|understand|honour|handle> {feature}<; today it {trouble}|>.",
            "<ticket|issue|case> {id}: {result} <although|even though> `{other}` <is|was> <right|untouched|green>.",
        ],
    ),
    (
        "trouble",
        &[
            "<ignores|drops|forgets> the {noun} <of|from> the <surrounding|outer|previous> {noun}",
            "<is called|runs> twice <when|whenever|if> {circumstance}",
            "<rounds|truncates> the {noun} <down|to whole numbers|too early>",
            "<returns|gives> <nothing|an empty list|a stale {noun}> <when|if> {circumstance}",
            "<treats|takes> a missing {noun} as <zero|empty|the default>",
            "<raises|fails|stops> before the <lock|handle|{noun}> is released",
            "<keeps|leaves> the old {noun} <behind|in the cache|in place> after <an update|a rollback|a retry>",
            "<does not know|guesses> the <time zone|encoding|locale> of the {noun}",
            "<compares|sorts> {noun}s <by name instead of by id|as text|in the wrong direction>",
            "<takes|needs> <minutes|far too long|{number} ms> for a <single|large|simple> {noun}",
        ],
    ),
    (
        "circumstance",
        &[
            "<the|a> {noun} is <empty|missing|renamed|older than {number} seconds|shared>",
            "two {noun}s <overlap|have the same key|arrive together>",
            "the {noun} <cursor|counter|queue> is reset",
            "<somebody|a client> <cancels|retries|reopens> <the|a> {noun}",
            "there are more than {number} {noun}s",
            "the <clock|server|worker> <restarts|is behind|goes to sleep>",
        ],
    ),
    (
        "result",
        &[
            "<wrong|doubled|missing|mixed up> {noun}s",
            "<an|a strange> error about the {noun}",
            "a {noun} <that belongs to somebody else|without a {noun}>",
            "<timeouts|crashes> in <the nightly run|production|{path}>",
            "numbers that do not add up",
        ],
    ),
    (
        "feature",
        &[
            "nested {noun}s",
            "{noun}s without <a|any> {noun}",
            "a second {noun}",
            "<several|mixed> <time zones|encodings|currencies>",
            "{noun}s of more than {number} entries",
            "partial {noun}s",
        ],
    ),
    (
        "who",
        &[
            "users",
            "two customers",
            "the people in support",
            "our testers",
            "the <billing|platform|data> team",
            "partners",
        ],
    ),
    ("day", &["Monday", "last Friday", "the weekend", "the release of {version}", "March"]),
    (
        "reason",
        &[
            "because {who} <parse|read|rely on> it",
            "since <audits|other services|old clients> depend on it",
            "as <agreed|decided> in <ticket {id}|the review>",
            "otherwise the <nightly run|deployment|migration> breaks",
            "we got burnt by that <before|in {version}>",
            "for legal reasons",
        ],
    ),
    (
        "place",
        &[
            "{path}",
            "`{symbol}`",
            "the <public API|database schema|generated code|wire format|build scripts|fixtures|migrations|vendored code>",
            "the {noun} <table|cache|protocol>",
        ],
    ),
    // What binds.
    (
        "rule",
        &[
            "<you must|the fix must|whatever you change, it must|every new function must|the result must> {duty}<, {reason}|>.",
            "<never|please never|do not|don't|please do not> {deed}<, {reason}|, not even <in tests|temporarily|for debugging>|>.",
            "<I do not want you to|nobody should ever, and you must never,|you shall not|you may not> {deed}.",
            "<only|you may only|please touch only> <change|edit> {place}<; the rest stays as it is| for this|, {reason}>.",
            "{place} <must|shall|should> not <change|be touched|be renamed|grow><, {reason}| unless I say so|>.",
            "<do it|solve this|get there> without <adding|introducing> <a dependency|a new {noun}|global state|another thread>.",
            "<always|please always> {duty}<, {reason}| before you report>.",
            "<a|one> <test|changelog line|comment that says why> is required for each <fix|new {noun}|changed signature>.",
            "<the rule here|our rule> is <simple|old>: {duty}.",
            "{deed_gerund} is forbidden<, {reason}|>.",
            "no {noun} may <take|hold|keep> more than {number} <ms|bytes|entries|{noun}s>; that is a rule<, {reason}|>.",
            "<it is fine|I don't mind> <if|that> this <takes longer|is slow>, but it must {duty}.",
        ],
    ),
    (
        "duty",
        &[
            "keep the signature of `{symbol}`",
            "stay compatible with <{version}|Python 3.9|the old {noun} format>",
            "run `{test}` <again after the last edit|and paste its last line>",
            "<work|pass> with <an empty|a missing|a very large> {noun}",
            "keep the order of the {noun}s",
            "log <the|each> {noun} once, at level <info|debug>",
            "return the {noun} in <UTC|cents|bytes>",
            "<finish|answer> within {number} ms for {big} {noun}s",
            "<close|release> the {noun} <on every path|even after an error>",
            "name <new|added> functions after <the|their> {noun}",
            "leave <a note|one line> in <CHANGELOG.md|docs/notes.md>",
            "use the helper `{other}` for <that|every {noun}>",
            "be readable by somebody who has never seen {path}",
            "treat a {noun} older than {number} days as expired",
        ],
    ),
    (
        "deed",
        &[
            "<rename|remove|inline> `{symbol}`",
            "<edit|touch|reformat> {path}",
            "change the <signature|default|return type> of `{symbol}`",
            "<add|upgrade|pin> <a dependency|packages>",
            "<skip|delete|weaken|mark as flaky> <a|any> test",
            "<write|print> the {noun} <to the log|to stdout>",
            "push to <main|release|the {noun} branch>",
            "<catch|swallow> errors in `{symbol}`",
            "call `{other}` <from|inside> <a loop|{path}>",
            "<raise|lower> the limit of {number} {noun}s",
            "use <sleep|a global lock|eval|a retry loop> to <fix|hide> this",
            "<copy|move> code out of {path}",
            "run the <whole suite|migration|formatter> <on all files|>",
            "store <a|the> {noun} <in plain text|twice|without its id>",
        ],
    ),
    (
        "deed_gerund",
        &[
            "<reformatting|touching|moving> {path}",
            "<mocking|patching> `{symbol}`",
            "<broad|silent> exception handling",
            "<a sleep|a retry> in <tests|`{symbol}`>",
            "<using|importing> private names of {path}",
        ],
    ),
    (
        "wish",
        &[
            "<keep|make> it <small|simple|boring>",
            "<tell|show> me <what you found|the cause> <first|at the end>",
            "a <small|short> <commit|diff> <is best|please>",
            "<take|look at> `{other}` as <an example|a model>",
            "<mention|write down> what you <left out|were unsure about>",
            "the <old|current> <behaviour|message> of `{other}` is <fine|right>",
        ],
    ),
    (
        "goal",
        &[
            "<please|could you> <find out why and|> <fix|correct|repair> <it|that>",
            "<make|get> `{test}` <pass|green>",
            "<find|track down> the <cause|reason> and <fix it|mend it|propose a fix, then do it>",
            "<implement|add|build> that",
            "<clean this up|sort this out>",
        ],
    ),
    (
        "next",
        &[
            "<next|now|then>: ",
            "<thanks|good|great|ok|fine>. ",
            "<another thing|one more>: ",
            "",
            "",
            "<and|so> ",
        ],
    ),
    // Small requests of a long conversation, and changed minds.
    (
        "small",
        &[
            "{next}<rename|call> the new <helper|variable|argument> <something shorter|after the {noun}>.",
            "{next}<add|write> a test for <an empty|a missing|a nested> {noun}.",
            "{next}what does `{other}` return <when|if> {circumstance}?",
            "{next}<run|repeat> `{test}` <once more|again, please>.",
            "{next}<document|explain> `{symbol}` in {path}.",
            "{next}why {number}? <I would have expected {big}|is that a guess>.",
            "{next}<the same|do the same> <for|in> {path}.",
        ],
    ),
    (
        "mind",
        &[
            "<hm, no|actually no|wait|sorry, I changed my mind>: not <a|the> {noun} but <a|the> {noun}, <as|like> in `{other}`.",
            "<on second thought|I was wrong|forget what I said>: <leave `{symbol}` alone and change `{other}`|put it into {path} rather than where it is now>.",
            "<not {number}|{number} is too <small|large>>, rather {big}.",
            "<undo|revert|take back> that <last|> change in {path}<; rather do it in `{other}`|, we want it in `{other}` instead>.",
            "<let's|we should> not <warn|guess|retry>, rather fail <early|loudly> <with|and say> <the|which> {noun}.",
            "<the customer|{who}> <wants|want> it <the other way round|differently>: the {noun} first, then the {noun}.",
        ],
    ),
    // What the agent says.
    (
        "look",
        &[
            "<let me|I will|I'll> <look at|open|read> <{path}|how `{symbol}` works>.",
            "<first|next>, <where|how> is `{symbol}` <used|defined|called>?",
            "<I need|I want> to <see|know> <what calls|what feeds> `{symbol}`.",
            "<looking|searching> for <the|other> <callers|users> of `{symbol}`.",
            "<the answer|this> <should|must> be in {path}.",
        ],
    ),
    (
        "finding",
        &[
            "<so|I see|found it>: `{symbol}` {trouble}.",
            "<the cause|the culprit|the reason> is in {path}: `{symbol}` {trouble}.",
            "`{other}` <sets|fills> the {noun}, and `{symbol}` <reads|overwrites> it <later|too early>.",
            "that <rules out|excludes> {path}: `{symbol}` <gets|receives> the right {noun}.",
            "<interesting|hm>: the {noun} is {value} here, <not what `{other}` expects|as in the first run>.",
            "<it fails|this breaks> only <when|if> {circumstance}.",
            "<this confirms|which means>: {result} come from `{symbol}`, not from `{other}`.",
        ],
    ),
    (
        "decision",
        &[
            "<I decided|I choose|decision>: <to|I> <keep|leave> `{symbol}` as it is and <change|correct> `{other}`<, because {circumstance}|>.",
            "<I will|I'll> <fix|handle> <this|it> in `{symbol}`, <so|so that> `{other}` <stays|needs no change>.",
            "<the plan|my plan> <is|now>: <change|split> `{symbol}`, then <adapt|simplify> `{other}`, then <run|rerun> the tests.",
            "<instead of|rather than> <a flag|another {noun}> I <use|pass> the {noun} <itself|through>.",
            "<I won't|I will not> <touch|change> {path}: <it is|that would be> <out of scope|what you forbade>.",
        ],
    ),
    (
        "doing",
        &[
            "<now|next> <the change|the edit> <in|to> `{symbol}`.",
            "<editing|changing> {path}.",
            "<with|using> {value} <as|for> the {noun}.",
            "<a small|one more> <change|correction> in `{symbol}`.",
            "<applying|making> the fix.",
        ],
    ),
    (
        "testing",
        &[
            "<running|let me run> the tests<| of {path}>.",
            "<does|did> it <pass|help>?",
            "<check|verify> <that|>.",
            "<and|now> the tests<| again>.",
            "<this should|let us see whether this does> pass now.",
        ],
    ),
    (
        "failed",
        &[
            "<still|it is still> <red|failing>: <I missed|it must be> the {noun}<| in `{other}`>.",
            "<one|another> <failure|problem> <is left|more>: {circumstance}.",
            "<no|hm>, <that|this> <was not it|broke `{other}`>.",
        ],
    ),
    (
        "passed",
        &[
            "<good|green|it passes now>.",
            "<all|the tests> pass<, so `{symbol}` is done|>.",
            "<that|this> <works|did it>.",
        ],
    ),
    (
        "report",
        &[
            "<done|fixed|finished>. `{symbol}` in {path} <now|> <keeps|uses|checks> the {noun}; <before|until now> it {trouble}.",
            "<the cause was|cause>: `{symbol}` {trouble}. <I changed|the fix is in> {path}<| and adapted `{other}`>; <`{test}` passes|all tests pass>.",
            "<summary|in short>: `{symbol}` <was|has been> <changed|rewritten> so that {circumstance} <works|is handled>. <not done|left open>: <`{other}`|the {noun} of {path}>.",
        ],
    ),
    (
        "question",
        &[
            "<should|shall> `{other}` <follow|change as well|be removed>?",
            "<do you want|would you like> <the old {noun}|a changelog line|a second test> <too|as well>?",
            "<which|what> {noun} <is|was> meant <by|in> {path}?",
        ],
    ),
    (
        "todo",
        &[
            "<read|understand> `{symbol}`",
            "<fix|change> `{symbol}` in {path}",
            "<add|write> <a test|tests> for <the|a missing> {noun}",
            "<adapt|update> `{other}`",
            "<run|rerun> <all tests|`{test}`>",
            "<check|clean up> {path}",
            "<document|describe> the {noun}",
        ],
    ),
    (
        "comment",
        &[
            "<the|each> {noun} <is|was> <checked|sorted|copied> <above|here|by the caller>",
            "<keeps|drops> <the|a> {noun} <once|when> {circumstance}",
            "see ticket {id}",
            "<not|never> <shared|empty> here",
            "<an old|a second> {noun} <comes|goes> first",
        ],
    ),
    (
        "aside",
        &[
            "<background|by the way|for context>: {result} <cost us|took> a <day|weekend> <last month|in {version}>, and {who} <are still|were rather> <unhappy|nervous>.",
            "<the code|that part> <was written|comes> <in a hurry|from another team>; `{other}` is <the better|a good> place to start.",
            "<I think|my guess is> that `{other}` <has something to do with it|is innocent>.",
            "<there is|you will find> more in {path}<, though it is out of date|>.",
        ],
    ),
];
