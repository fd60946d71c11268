//! Generated conversations with planted statements, in five languages.

use std::sync::Arc;

use pirn_definition::message::{Message, Role};

/// Number of compressions of a conversation.
pub(crate) const ROUNDS: usize = 5;

/// Number of questions in a round.
const QUESTIONS: usize = 12;

/// Kind of a planted statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A prohibition of the user.
    Rule,
    /// A value of a thing.
    Fact,
    /// A property that a thing does not have.
    Negation,
    /// A value that the user corrects later.
    Correction,
    /// A claim of the model.
    Claim,
}

impl Kind {
    pub(crate) const ALL: [Self; 5] = [Self::Rule, Self::Fact, Self::Negation, Self::Correction, Self::Claim];
}

/// A planted statement.
#[derive(Clone, Debug)]
pub(crate) struct Planted {
    pub(crate) kind: Kind,
    /// Last version of the sentence.
    pub(crate) text: String,
    /// Sentence that a correction replaced.
    pub(crate) stale: Option<String>,
    /// Start of the sentence, which a model completes with `answer`.
    pub(crate) question: String,
    /// A number: the value, or the digits of the id if the sentence has no value.
    pub(crate) answer: String,
}

impl Planted {
    fn new(kind: Kind, template: &str, id: &str, number: u64) -> Self {
        let number = number.to_string();
        let (question, answer) = match (template.split_once('#'), id.split_once('-')) {
            (Some((start, _)), _) => (start.replace("{}", id), number.as_str()),
            (None, Some((letters, digits))) => {
                let start = template.split("{}").next().unwrap_or_default();
                (format!("{start}{letters}-"), digits)
            }
            (None, None) => unreachable!("an id has a hyphen"),
        };
        Self {
            kind,
            text: template.replace("{}", id).replace('#', &number),
            stale: None,
            question: question.trim_end().to_owned(),
            answer: answer.to_owned(),
        }
    }
}

/// A conversation by rounds.
pub(crate) struct Conversation {
    pub(crate) rounds: Vec<Vec<Arc<Message>>>,
    pub(crate) planted: Vec<Planted>,
}

/// Templates of a language; `{}` is replaced by an id, and `#` by a number.
struct Language {
    rule: &'static str,
    fact: &'static str,
    negation: &'static str,
    price: &'static str,
    corrected: &'static str,
    claim: &'static str,
    fillers: [&'static str; 4],
    answer: &'static str,
}

const LANGUAGES: [Language; 5] = [
    Language {
        rule: "Never send the parcel {} by air.",
        fact: "The parcel {} weighs # kg.",
        negation: "The order {} is not refundable.",
        price: "The price of {} is # EUR.",
        corrected: "Actually, the price of {} is # EUR.",
        claim: "The depot {} closes at # hours.",
        fillers: [
            "Let us look at the list of the carriers again and think about the next days.",
            "the weather was rather good on the way, and the drivers were early",
            "I have read the answer and it sounds fine so far.",
            "what do the others think about the new boxes in the hall",
        ],
        answer: "That sounds good, and the plan stays as it is for the moment.",
    },
    Language {
        rule: "Versende das Paket {} niemals per Luftfracht.",
        fact: "Das Paket {} wiegt # kg.",
        negation: "Die Bestellung {} ist nicht erstattungsfähig.",
        price: "Der Preis von {} ist # EUR.",
        corrected: "Eigentlich ist der Preis von {} # EUR.",
        claim: "Das Depot {} schließt um # Uhr.",
        fillers: [
            "Sehen wir uns noch einmal die Liste der Spediteure an.",
            "unterwegs war das wetter recht gut, und die fahrer waren früh da",
            "Ich habe die Antwort gelesen, und sie klingt bisher gut.",
            "was halten die anderen von den neuen kisten in der halle",
        ],
        answer: "Das klingt gut, und es bleibt vorerst bei dem Plan.",
    },
    Language {
        rule: "Il ne faut en aucun cas envoyer le colis {} par avion.",
        fact: "Le colis {} pèse # kg.",
        negation: "La commande {} n'est pas remboursable.",
        price: "Le prix de {} est # EUR.",
        corrected: "En fait, le prix de {} est # EUR.",
        claim: "Le dépôt {} ferme à # heures.",
        fillers: [
            "Regardons encore une fois la liste des transporteurs.",
            "il faisait plutôt beau en chemin, et les chauffeurs étaient en avance",
            "J'ai lu la réponse et elle semble bonne pour le moment.",
            "que pensent les autres des nouvelles caisses dans le hall",
        ],
        answer: "Cela semble bon, et le plan reste comme il est pour le moment.",
    },
    Language {
        rule: "Nunca envíes el paquete {} por avión.",
        fact: "El paquete {} pesa # kg.",
        negation: "El pedido {} no es reembolsable.",
        price: "El precio de {} es # EUR.",
        corrected: "En realidad, el precio de {} es # EUR.",
        claim: "El depósito {} cierra a las # horas.",
        fillers: [
            "Miremos otra vez la lista de los transportistas.",
            "el tiempo era bastante bueno por el camino, y los conductores llegaron pronto",
            "He leído la respuesta y suena bien por ahora.",
            "qué piensan los demás de las nuevas cajas en la sala",
        ],
        answer: "Suena bien, y el plan queda como está por el momento.",
    },
    Language {
        rule: "不得空运包裹 {}。",
        fact: "包裹 {} 重 # 公斤。",
        negation: "订单 {} 不可退款。",
        price: "{} 的价格是 # 欧元。",
        corrected: "其实，{} 的价格是 # 欧元。",
        claim: "仓库 {} 在 # 点关门。",
        fillers: [
            "我们再看一下承运人的名单。",
            "路上的天气很好，司机也来得很早",
            "我看了回答，目前听起来很好。",
            "大家觉得大厅里的新箱子怎么样",
        ],
        answer: "听起来很好，计划暂时保持原样。",
    },
];

/// Pseudo-random numbers (SplitMix64), equal in every execution.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }

    fn id(&mut self) -> String {
        let letter = |number: u64| char::from(b'A' + u8::try_from(number).unwrap_or_default());
        let (one, other) = (letter(self.next(26)), letter(self.next(26)));
        format!("{one}{other}-{}", 1_000 + self.next(9_000))
    }
}

/// Generates a conversation. Each round plants statements at random positions between other questions and answers, which have up to
/// `most` sentences.
pub(crate) fn conversation(seed: u64, most: u64) -> Conversation {
    let mut numbers = Numbers(seed);
    let language = &LANGUAGES[usize::try_from(seed).unwrap_or_default() % LANGUAGES.len()];
    let mut planted: Vec<Planted> = Vec::new();
    let mut rounds = Vec::new();
    let system = "You help with parcels. Answer in the language of the user.";
    for round in 0..ROUNDS {
        let mut said: Vec<(Role, String)> = Vec::new();
        for _ in 0..QUESTIONS {
            let at = usize::try_from(numbers.next(4)).unwrap_or_default();
            said.push((Role::User, language.fillers[at].to_owned()));
            // The first and the third are whole sentences.
            let more = (1..=numbers.next(most)).map(|at| language.fillers[(at % 2 * 2) as usize]);
            let answer: Vec<&str> = std::iter::once(language.answer).chain(more).collect();
            said.push((Role::Assistant, answer.join(" ")));
        }
        let mut plant = |kind, template: &str, numbers: &mut Numbers| {
            let one = Planted::new(kind, template, &numbers.id(), 10 + numbers.next(80));
            let text = one.text.clone();
            planted.push(one);
            let is_claim = kind == Kind::Claim;
            let pairs = said.len() / 2;
            let pair = usize::try_from(numbers.next(pairs as u64)).unwrap_or_default();
            let (_, into) = &mut said[pair * 2 + usize::from(is_claim)];
            // Two of the questions have no mark at their end.
            *into = format!("{into}\n{text}");
        };
        if round % 2 == 0 {
            plant(Kind::Rule, language.rule, &mut numbers);
        }
        plant(Kind::Fact, language.fact, &mut numbers);
        plant(Kind::Fact, language.fact, &mut numbers);
        plant(Kind::Negation, language.negation, &mut numbers);
        plant(Kind::Claim, language.claim, &mut numbers);
        // A value, and its correction in the next round.
        let corrected = planted
            .iter_mut()
            .find(|one| one.kind == Kind::Correction && one.stale.is_none());
        if let Some(one) = corrected {
            let id = one
                .text
                .split_whitespace()
                .find(|word| word.contains('-'))
                .unwrap_or_default();
            let new = Planted::new(
                Kind::Correction,
                language.corrected,
                id.trim_end_matches('.'),
                100 + numbers.next(80),
            );
            said.push((Role::User, new.text.clone()));
            one.stale = Some(std::mem::replace(&mut one.text, new.text));
            one.answer = new.answer;
        } else {
            let one = Planted::new(Kind::Correction, language.price, &numbers.id(), 10 + numbers.next(80));
            said.push((Role::User, one.text.clone()));
            planted.push(one);
        }
        said.push((Role::Assistant, language.answer.to_owned()));
        let system = (round == 0).then(|| Message::new(Role::System, system));
        let said = said.into_iter().map(|(role, text)| Message::new(role, text));
        rounds.push(system.into_iter().chain(said).map(Arc::new).collect());
    }
    Conversation { rounds, planted }
}
