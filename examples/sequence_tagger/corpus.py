"""Generated sentences with people, places and organizations, tagged in BIO format.

B-PER begins the name of a person, I-PER continues it, O is outside of any name. Several
words occur in names of all kinds ("Jordan", "Paris", "Lincoln"), so that a word does
not tell its tag: the words around it and the tag before it do.
"""

import numpy as np

KINDS = ("PER", "LOC", "ORG")
TAGS = ("O", *(f"{part}-{kind}" for kind in KINDS for part in "BI"))

FIRST = [
    "Anna",
    "Paris",
    "Jordan",
    "Maria",
    "Lincoln",
    "Omar",
    "Florence",
    "Chen",
    "Sofia",
    "Austin",
]
LAST = [
    "Lincoln",
    "Jordan",
    "Silva",
    "Paris",
    "Houston",
    "Novak",
    "Okafor",
    "Tanaka",
    "Austin",
    "Weber",
]
PLACES = [
    *["Paris", "Jordan", "Austin", "Florence", "Houston", "Lincoln", "Lagos", "Kyoto"],
    *["New Paris", "New Houston", "San Jordan", "Port Lincoln", "Upper Austin"],
]
TRADES = ["Industries", "Foods", "Airlines", "Motors"]
PATTERNS = (
    "{PER} lives in {LOC} .",
    "{PER} works for {ORG} in {LOC} .",
    "{ORG} opened an office in {LOC} .",
    "yesterday {PER} met {PER} near {LOC} .",
    "the president of {ORG} , {PER} , left {LOC} early .",
    "{LOC} is far from {LOC} .",
    "{ORG} bought {ORG} .",
    "according to {PER} , {ORG} pays well .",
    "nobody works today .",
)
LONGEST = 17  # words; no pattern gives more


def name_of(kind, rng):
    """Return the words of a random name."""
    if kind == "PER":
        middle = ["van"] if rng.random() < 0.2 else []
        last = [rng.choice(LAST)] if rng.random() < 0.8 else []
        return [rng.choice(FIRST), *middle, *last]
    if kind == "LOC":
        return rng.choice(PLACES).split()
    if rng.random() < 0.5:
        return ["University", "of", *rng.choice(PLACES).split()]
    return [rng.choice(LAST), rng.choice(TRADES)]


def sentence(rng):
    """Return the words and the tags of a random sentence."""
    words, tags = [], []
    for part in rng.choice(PATTERNS).split():
        kind = part.strip("{}")
        if kind in KINDS:
            name = name_of(kind, rng)
            words += name
            tags += [f"B-{kind}"] + [f"I-{kind}"] * (len(name) - 1)
        else:
            words.append(part)
            tags.append("O")
    return words, tags


def sentences(count, seed):
    """Return a list of pairs (words, tags)."""
    rng = np.random.default_rng(seed)
    return [sentence(rng) for _ in range(count)]


def vocabulary(tagged):
    """Return the words by id; 0 is padding, 1 any unknown word."""
    return ["<pad>", "<unknown>", *sorted({w for words, _ in tagged for w in words})]


def as_arrays(tagged, words_by_id):
    """Return features {words [N, T], length [N]} and tags [N, T], padded with 0."""
    ids = {word: number for number, word in enumerate(words_by_id)}
    words = np.zeros((len(tagged), LONGEST), np.int32)
    tags = np.zeros((len(tagged), LONGEST), np.int32)
    for row, (text, named) in enumerate(tagged):
        words[row, : len(text)] = [ids.get(word, 1) for word in text]
        tags[row, : len(named)] = [TAGS.index(tag) for tag in named]
    lengths = np.array([len(text) for text, _ in tagged], np.int32)
    return {"words": words, "length": lengths}, tags


def entities(tags):
    """Return the names in a list of tags, as a set of (kind, start, end).

    >>> sorted(entities(["O", "B-PER", "I-PER", "B-LOC"]))
    [('LOC', 3, 4), ('PER', 1, 3)]
    """
    found, kind, start = set(), None, 0
    for place, tag in enumerate([*tags, "O"]):
        if kind is not None and tag != f"I-{kind}":
            found.add((kind, start, place))
            kind = None
        if tag.startswith("B-"):
            kind, start = tag[2:], place
    return found
