//! An assistant of a service desk: it looks up people, cases and rules, and changes what it is told to.

use fastrand::Rng;
use serde_json::{Value, json};

use super::grammar::{chance, pick, say, size};
use super::talk::{Call, Conversation, Talk};

/// The business of a desk.
#[derive(Debug)]
struct Business {
    about: &'static str,
    person: &'static str,
    thing: &'static str,
    items: [&'static str; 6],
    /// Tools: find a person, read one, list things, read one, find items, change, pay back, note, search rules.
    tools: [&'static str; 9],
    states: [&'static str; 5],
}

const BUSINESSES: [Business; 3] = [
    Business {
        about: "a shop for furniture and lamps",
        person: "customer",
        thing: "order",
        items: ["floor lamp", "oak table", "bookcase", "desk chair", "rug", "sideboard"],
        tools: [
            "find_customer",
            "get_customer",
            "list_orders",
            "get_order",
            "search_products",
            "change_order",
            "refund_order",
            "add_note",
            "search_rules",
        ],
        states: ["pending", "shipped", "delivered", "returned", "cancelled"],
    },
    Business {
        about: "a ferry line",
        person: "passenger",
        thing: "booking",
        items: [
            "cabin",
            "deck seat",
            "car space",
            "night crossing",
            "day crossing",
            "bicycle space",
        ],
        tools: [
            "search_passengers",
            "passenger_details",
            "bookings_of",
            "booking_details",
            "search_crossings",
            "rebook",
            "pay_back",
            "write_remark",
            "look_up_terms",
        ],
        states: ["reserved", "paid", "boarded", "missed", "waiting"],
    },
    Business {
        about: "the members' office of a health fund",
        person: "member",
        thing: "claim",
        items: [
            "pair of glasses",
            "hearing aid",
            "dental crown",
            "course of treatment",
            "vaccination",
            "knee brace",
        ],
        tools: [
            "MemberSearch",
            "MemberRead",
            "ClaimList",
            "ClaimRead",
            "BenefitSearch",
            "ClaimUpdate",
            "Payout",
            "CaseNote",
            "KnowledgeSearch",
        ],
        states: ["received", "in review", "approved", "refused", "paid"],
    },
];

/// A person with what the office knows of them.
#[derive(Clone, Debug)]
struct Person {
    name: String,
    id: String,
    account: String,
    things: Vec<(String, String, String)>,
}

#[derive(Debug)]
struct Desk {
    rng: Rng,
    talk: Talk,
    business: &'static Business,
    people: Vec<Person>,
    /// The person of the open case, by place.
    current: usize,
    values: Vec<String>,
}

/// Makes a conversation of about so many tokens.
pub(crate) fn conversation(mut rng: Rng, name: String, tokens: usize) -> Conversation {
    let business = &BUSINESSES[rng.usize(..BUSINESSES.len())];
    let talk = Talk::new(&mut rng);
    let people = (0..40).map(|_| person(&mut rng)).collect();
    let mut desk = Desk { rng, talk, business, people, current: 0, values: Vec::new() };
    let rules: Vec<_> =
        (0..desk.rng.usize(4..9)).map(|_| format!("- {}", desk.sentence("desk_rule"))).collect();
    let system = format!(
        "You assist the desk of {}. You look things up before you answer, and you change nothing that was not confirmed.\n\
         House rules:\n{}",
        business.about,
        rules.join("\n")
    );
    while desk.talk.tokens() < tokens {
        desk.case(tokens);
    }
    Conversation { name, system, messages: desk.talk.messages }
}

fn person(rng: &mut Rng) -> Person {
    const FIRST: [&str; 16] = [
        "Ana", "Bela", "Chidi", "Dana", "Emil", "Farah", "Goran", "Hana", "Ivo", "Jun", "Kofi",
        "Lena", "Mika", "Nora", "Otto", "Pia",
    ];
    const LAST: [&str; 16] = [
        "Adler", "Berg", "Costa", "Dvorak", "Eze", "Fontaine", "Garcia", "Horvat", "Ito", "Jansen",
        "Kaya", "Lindholm", "Moreau", "Novak", "Okafor", "Petrov",
    ];
    let (first, last) = (pick(rng, &FIRST), pick(rng, &LAST));
    let id = format!("{}_{}_{}", first.to_lowercase(), last.to_lowercase(), rng.u16(1000..9999));
    let things = (0..rng.usize(1..6))
        .map(|_| (rng.u32(1_000_000..9_999_999).to_string(), amount(rng), date(rng)));
    let things = things.collect();
    Person {
        name: format!("{first} {last}"),
        id,
        account: format!("account_{}", rng.u32(1_000_000..9_999_999)),
        things,
    }
}

fn amount(rng: &mut Rng) -> String {
    format!("{}.{:02}", size(rng, 140.0, 4000.0), rng.u8(..100))
}

fn date(rng: &mut Rng) -> String {
    format!("2026-{:02}-{:02}", rng.u8(1..13), rng.u8(1..29))
}

impl Desk {
    /// Makes one case: what is asked, what is found, offered, confirmed and done.
    fn case(&mut self, most_tokens: usize) {
        // People come back: early ones are the likelier, the longer the conversation.
        self.current = self.rng.usize(..self.people.len()).min(self.rng.usize(..self.people.len()));
        let mut text = self.sentence("desk_open");
        if chance(&mut self.rng, 22) {
            text = match self.rng.u8(..3) {
                0 => format!("{} {text}", self.sentence("desk_rule")),
                1 => {
                    format!("{text} {} {}", self.sentence("desk_rule"), self.sentence("desk_open"))
                }
                _ => format!(
                    "{text}\n\nFrom now on:\n- {}\n- {}",
                    self.sentence("desk_rule"),
                    self.sentence("desk_rule")
                ),
            };
        }
        self.talk.ask(&text);
        self.look_up();
        self.answer(&["desk_found", "desk_offer"]);
        for _ in 0..self.rng.usize(..5) {
            if self.talk.tokens() >= most_tokens {
                return;
            }
            let rule = pick(
                &mut self.rng,
                &["desk_yes", "desk_yes", "desk_mind", "desk_ask", "desk_open"],
            );
            let said = self.sentence(rule);
            self.talk.ask(&said);
            match rule {
                "desk_yes" => self.change(),
                "desk_ask" => self.search(),
                _ => self.look_up(),
            }
            let last = if rule == "desk_yes" { "desk_done" } else { "desk_offer" };
            self.answer(&["desk_found", last]);
        }
    }

    fn sentence(&mut self, rule: &str) -> String {
        let (business, person, values) = (self.business, &self.people[self.current], &self.values);
        say(&mut self.rng, rule, &|rng, place| {
            let known = rng.choice(&person.things).expect("a person has a thing");
            Some(match place {
                "name" => person.name.clone(),
                "person" => business.person.to_owned(),
                "thing" => business.thing.to_owned(),
                "thing_id" => known.0.clone(),
                "item" => pick(rng, &business.items).to_owned(),
                "amount" if rng.bool() => known.1.clone(),
                "amount" => amount(rng),
                "date" if rng.bool() => known.2.clone(),
                "date" => date(rng),
                "days" => rng.u8(2..90).to_string(),
                "status" => pick(rng, &business.states).to_owned(),
                "article" => format!("KB-{}", rng.u16(100..999)),
                "value" => match rng.choice(values) {
                    Some(value) => value.clone(),
                    None => rng.u32(100_000..999_999).to_string(),
                },
                _ => return None,
            })
        })
    }

    fn answer(&mut self, rules: &[&str]) {
        let sentences: Vec<_> = rules.iter().map(|rule| self.sentence(rule)).collect();
        self.talk.answer(&sentences.join(if self.rng.bool() { " " } else { "\n\n" }));
    }

    /// Looks up the person, their things, or items that they may want.
    fn look_up(&mut self) {
        for turn in 0..self.rng.usize(1..5) {
            let person = self.people[self.current].clone();
            let [find, read, list, one, items, ..] = self.business.tools;
            let calls = match if turn == 0 { 0 } else { self.rng.u8(..6) } {
                0 => {
                    let found = json!([{"id": person.id, "name": person.name}]);
                    vec![Call::new(find, json!({"name": person.name}), found.to_string())]
                }
                1 => {
                    let known = self.record(&person);
                    vec![Call::new(read, json!({"user_id": person.id}), known.to_string())]
                }
                2 => {
                    let all: Vec<_> = person.things.iter().map(|thing| self.thing(thing)).collect();
                    let input = json!({"user_id": person.id, "limit": self.rng.u8(5..50)});
                    vec![Call::new(list, input, json!(all).to_string())]
                }
                3 | 4 => {
                    let count = self.rng.usize(1..4).min(person.things.len());
                    let calls = person.things[..count].iter().map(|thing| {
                        let found = self.thing(thing).to_string();
                        Call::new(one, json!({"id": thing.0}), found)
                    });
                    calls.collect()
                }
                _ => {
                    let all: Vec<_> =
                        (0..size(&mut self.rng, 9.0, 40.0)).map(|_| self.item()).collect();
                    let wanted = pick(&mut self.rng, &self.business.items);
                    let input = json!({"query": wanted, "max_price": amount(&mut self.rng), "from": date(&mut self.rng)});
                    vec![Call::new(
                        items,
                        input,
                        serde_json::to_string_pretty(&all).unwrap_or_default(),
                    )]
                }
            };
            let said = if self.rng.bool() { self.sentence("desk_look") } else { String::new() };
            self.turn(&said, calls);
        }
    }

    /// Searches the rules of the house.
    fn search(&mut self) {
        let passages: Vec<_> = (0..self.rng.usize(2..6))
            .map(|_| {
                let sentences: Vec<_> = (0..size(&mut self.rng, 8.0, 30.0)).map(|_| self.sentence("policy")).collect();
                json!({"article": format!("KB-{}", self.rng.u16(100..999)), "score": self.rng.u8(40..99), "text": sentences.join(" ")})
            })
            .collect();
        let query = self.sentence("desk_ask");
        let input = json!({"query": query, "top_k": passages.len()});
        let call =
            Call::new(self.business.tools[8], input, json!({"passages": passages}).to_string());
        self.turn("", vec![call]);
    }

    /// Changes a thing of the person, pays back or notes.
    fn change(&mut self) {
        let person = self.people[self.current].clone();
        let [.., change, pay, note, _] = self.business.tools;
        let at = self.rng.usize(..person.things.len());
        let (id, paid, _) = person.things[at].clone();
        let (day, reference) = (date(&mut self.rng), self.rng.u32(100_000..999_999));
        let call = match self.rng.u8(..3) {
            0 => {
                let input = json!({"id": id, "user_id": person.id, "date": day, "reason": self.sentence("complaint")});
                self.people[self.current].things[at].2 = day;
                Call::new(change, input, json!({"ok": true, "reference": reference}).to_string())
            }
            1 => {
                let input = json!({"id": id, "amount": paid, "account_id": person.account});
                let result = match chance(&mut self.rng, 15) {
                    true => json!({"error": "the account refuses credits", "code": reference}),
                    false => json!({"ok": true, "paid": paid, "reference": reference}),
                };
                Call::new(pay, input, result.to_string())
            }
            _ => {
                let input = json!({"user_id": person.id, "text": self.sentence("desk_found")});
                Call::new(note, input, json!({"note": reference}).to_string())
            }
        };
        if self.rng.bool() {
            self.values.push(reference.to_string());
        }
        self.turn("", vec![call]);
    }

    fn record(&mut self, person: &Person) -> Value {
        json!({
            "user_id": person.id, "name": person.name, "since": date(&mut self.rng),
            "address": format!("{} {} Street, {}", self.rng.u16(1..400), person.name.split(' ').next_back().unwrap_or_default(), self.rng.u32(10_000..99_999)),
            "accounts": [{"id": person.account, "kind": pick(&mut self.rng, &["card", "bank", "voucher"])}],
            "things": person.things.iter().map(|(id, ..)| id).collect::<Vec<_>>(),
        })
    }

    fn thing(&mut self, (id, paid, day): &(String, String, String)) -> Value {
        let events =
            (0..self.rng.usize(..6)).map(|_| self.sentence("desk_found")).collect::<Vec<_>>();
        json!({
            "id": id, "amount": paid, "date": day, "status": pick(&mut self.rng, &self.business.states),
            "items": [{"id": self.rng.u32(100_000..999_999), "name": pick(&mut self.rng, &self.business.items), "amount": paid}],
            "history": events,
        })
    }

    fn item(&mut self) -> Value {
        json!({
            "item_id": self.rng.u32(100_000..999_999), "name": pick(&mut self.rng, &self.business.items),
            "amount": amount(&mut self.rng), "from": date(&mut self.rng), "left": self.rng.u8(..40),
            "about": self.sentence("policy"),
        })
    }

    fn turn(&mut self, said: &str, calls: Vec<Call>) {
        for call in &calls {
            let words = call.result.split(|c: char| !c.is_ascii_alphanumeric());
            let found: Vec<_> = words
                .filter(|word| word.len() >= 5 && word.bytes().all(|b| b.is_ascii_digit()))
                .collect();
            if chance(&mut self.rng, 40) {
                self.values.extend(self.rng.choice(&found).map(|&value| value.to_owned()));
            }
        }
        self.talk.turn(said, calls);
    }
}
