//! Rules of the sentences that clerks, their assistants and house rules are made of.

/// Rules: a name, and the texts that it can stand for.
pub(crate) const RULES: &[(&str, &[&str])] = &[
    (
        "desk_open",
        &[
            "<hi|hello|good morning|next one>, <{name}|a {person} named {name}> <is on the line|writes|has called twice>: {wish_of_person}.",
            "{name} <wants|asks> <to <cancel|change|move> {thing} {thing_id}|about {thing} {thing_id}|for {amount} back>. <{desk_wish}|>",
            "<please look at|can you check|what about> {thing} {thing_id}? {name} <says|claims> that {complaint}.",
            "<e-mail|letter|call> from {name}: \"{complaint}, and I <want|expect> <an answer by {date}|my {amount} back|a {item} that works>.\" <{desk_wish}|>",
            "<do we have|is there> a {item} <under {amount}|before {date}>? It is for {name}.",
            "<now|and> {name} again, <about|with> {thing} {thing_id}: {complaint}.",
        ],
    ),
    (
        "wish_of_person",
        &[
            "<wants|would like> to <move|change|return> {thing} {thing_id}",
            "<asks|wonders> <why {amount} was taken|where {thing} {thing_id} is>",
            "<needs|wants> a {item} <by|on> {date}",
            "says that {complaint}",
        ],
    ),
    (
        "complaint",
        &[
            "the {item} <was broken|never came|is the wrong one>",
            "{amount} <was|were> <charged|taken> twice",
            "nobody <answered|called back> since {date}",
            "the date on {thing} {thing_id} is <wrong|not what was agreed>",
            "the <address|name> on {thing} {thing_id} is misspelt",
        ],
    ),
    (
        "desk_wish",
        &[
            "<see|check> <what we can do|the history first>.",
            "<be generous|stay firm> <here|with this one>.",
            "<tell me|let me know> the <total|dates> <first|before anything else>.",
            "",
        ],
    ),
    (
        "desk_rule",
        &[
            "<never|do not|please never> <refund|promise|credit> more than {amount} <without asking me|on one {thing}|to anybody who is new>.",
            "<you must|the desk must> <read back|confirm|write down> the {thing} number <before you change anything|at the end of each case>.",
            "<only|we only> <move|change> <a|an open> {thing} <once|within {days} days|if the {person} was asked>.",
            "<always|from now on, always> <offer|name|try> <the cheaper {item}|a credit note|another date> <first|before a refund>.",
            "<don't|you may not> <tell|give> {person}s <what we pay|the numbers of others|another date than the one in the system>.",
            "<a|any> <refund|change> above {amount} is forbidden <on weekends|until {date}|for {thing}s that were paid by voucher>.",
            "<nothing|no {item}> <shall|may> leave the house without <a receipt|the signature of {name}|a {thing} number>; <that is a rule|no exceptions>.",
            "<a copy|proof> of the <receipt|passport> is required <above {amount}|for a second {item}|after {date}>.",
            "<for {name}|for people from abroad|for this {person}> the fee of {amount} <must|should> <not be charged|always be waived>.",
            "<answers|letters> <must|should not> <be longer than {days} lines|mention the supplier>.",
        ],
    ),
    (
        "desk_yes",
        &[
            "yes",
            "yes, <do that|go ahead|please>.",
            "ok",
            "fine, <book|do|send> it.",
            "<correct|exactly>.",
            "<agreed|good>, and <tell|write to> {name}.",
        ],
    ),
    (
        "desk_mind",
        &[
            "<no, wait|sorry|hm>: not <on|> {date}, rather {date}.",
            "<not {amount}|{amount} is too much>, <make it|give> {amount}.",
            "<they|{name}> changed <their|the> mind: <a {item}|another {item}> instead.",
            "<stop|leave it>, <first|do> the other {thing}, {thing_id}.",
            "<actually|on second thought>, a credit note <of {amount}|> rather than a refund.",
        ],
    ),
    (
        "desk_ask",
        &[
            "<what is|remind me of> our rule <for|on> <late {thing}s|broken {item}s|fees|refunds>?",
            "<how much|what> did we give {name} <last time|on {date}>?",
            "<may|can> we <waive|return> {amount} <here|for that>?",
            "which {item}s <are left|can they have> <before {date}|for {amount}>?",
            "<when|why> was {thing} {thing_id} <moved|opened|changed>?",
        ],
    ),
    (
        "desk_look",
        &[
            "<let me|I will> <look up|check> {name}.",
            "<looking at|opening> {thing} {thing_id}.",
            "<one moment|first> the <history|rules>.",
            "I <need|want> the <details|payment> <of|for> {thing_id} <first|>.",
        ],
    ),
    (
        "desk_found",
        &[
            "{thing} {thing_id} is {status}: {amount}, <due|dated> {date}.",
            "<the|our> rule ({article}) <allows|covers> <this|up to {amount}|it until {date}>.",
            "{name} <has|holds> {days} {thing}s, the <latest|oldest> of {date}.",
            "<reference|case number> {value} <shows|says> {amount}<, not what was said|>.",
        ],
    ),
    (
        "desk_offer",
        &[
            "<I can|shall I|do you want me to> <refund {amount}|move {thing_id} to {date}|send another {item}>?",
            "<two ways|options>: a credit note of {amount}, or {date} for the same {item}.",
            "<before I|to> <change|do> <it|that>: {thing} {thing_id}, {amount}, {name}. <correct|go ahead>?",
        ],
    ),
    (
        "desk_done",
        &[
            "<done|changed|booked>: {thing} {thing_id} <is|is now> {status}; {amount} <go|goes> back <to the card|within {days} days>.",
            "<I have|I> <noted|written> <it|that> under <reference|number> {value}, and {name} <gets|was sent> a message.",
            "<left open|not done>: <the fee of {amount}|the second {item}>.",
        ],
    ),
    (
        "policy",
        &[
            "a {item} <can|may> be <returned|exchanged> within {days} days <if|when> <the seal is whole|the {thing} was paid in full>.",
            "<refunds|credits> above {amount} <need|go through> <a second person|the evening list>.",
            "the fee is {amount} <per|for each> {item}<, from {date} on|>.",
            "<a|each> {thing} <stays open|is held> for {days} days; <after that|then> it <expires|is billed>.",
            "{person}s of more than {days} years <pay|are charged> <half|nothing>.",
            "<see also|this replaces> {article} of {date}.",
            "<what was|anything> <paid|bought> by voucher <returns|goes back> to the voucher, <at|up to> {amount}.",
            "<staff|the desk> <notes|records> <the reason|who called> in reference {value}.",
            "<exceptions|special cases>: <a {item} ordered before {date}|{thing}s under {amount}>.",
        ],
    ),
];
