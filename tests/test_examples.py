"""The examples, on a tiny random model: what they promise of every text holds in every live particle."""

import re

import numpy as np
import pytest
import torch
from scripts import live, load
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from hfppl import CachedCausalLM

WORDS = """the sun and moon of a sea old man sat by window got lost in his own thoughts warm light on water
wind bird sings to me we go home now stars are out night is long rain falls soft upon our small town I saw
ghost friend like letter bridge wrote found under never seen yesterday sometimes governor constitution don't
beautiful it's she'll 12 7 well-known étude naïve haiku about has three lines five seven syllables"""
CHAT = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"


no_letter = load("no_letter")
hard_constraints = load("hard_constraints")
prompt_intersection = load("prompt_intersection")
infilling = load("infilling")
haiku = load("haiku")


def small_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE that has learnt a few words, long ones and short ones, with and without a space."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=alphabet, special_tokens=["<eos>"], show_progress=False
    )
    backend.train_from_iterator([f"{word} {word}" for word in WORDS.split()] * 20, trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>")
    tokenizer.chat_template = CHAT
    return tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model as `--model` takes it: a randomly initialised Llama and its tokenizer."""
    path = tmp_path_factory.mktemp("tiny-llama")
    tokenizer = small_tokenizer()
    tokenizer.save_pretrained(path)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(path)
    return str(path)


def longest_word(text: str) -> int:
    """Letters in the longest word, apostrophes within it not counted."""
    words = re.findall(r"[^\W\d_]+(?:['’]+[^\W\d_]+)*", text)
    return max((len(re.sub("['’]", "", word)) for word in words), default=0)


def test_no_letter(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    particles = no_letter.main(["--model", folder, "--n-particles", "12", "--max-tokens", "15"])
    assert len(particles) == 12
    for particle in live(particles):
        assert re.fullmatch("[ a-zA-Z,.!?'-]+", str(particle))
        assert "e" not in str(particle).lower()
    printed = capsys.readouterr().out
    assert str(particles.best()) in printed
    assert f"{particles.log_marginal_likelihood:.2f}" in printed


def test_hard_constraints(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = "I never saw the sun and the moo"
    particles = hard_constraints.main(
        ["--model", folder, "--n-particles", "15", "--max-tokens", "12", "--seed", "3", "--prompt", prompt]
    )
    tokens = 0
    for particle in live(particles):
        text = str(particle)
        # The prompt breaks off within a word: it counts with what goes on with it.
        assert longest_word(f"moo{text}") <= 5, text
        assert not re.search(r"[\d\n<>]", text), text
        ended = particle.context.tokens[-1] in particle.context.lm.eos_token_ids
        assert ended or particle.context.token_count == 12
        tokens += particle.context.token_count
    printed = capsys.readouterr().out
    for phrase in (
        "log marginal likelihood",
        "effective sample size",
        "loading",
        "masks",
        f"{tokens} tokens",
    ):
        assert phrase in printed
    assert printed.count("\n") < 80
    assert max(map(len, printed.splitlines())) <= 110


def test_hard_constraints_knows_where_a_word_stands(folder: str) -> None:
    lm = CachedCausalLM.from_pretrained(folder, backend="mock")
    rule = hard_constraints.Rule(lm)
    assert all(mask >= lm.masks.EOS for mask in rule.masks)
    open_words = {"the gov": 3, "don't": 4, "a 12": 0, "well-kno": 3, "the ": 0, "": 0, "x\n": 0, "river": 5}
    for text, n_letters in open_words.items():
        allowed = rule.after(text)
        open_word = "x" * n_letters
        for piece in (lm.vocab[i] for i in allowed - lm.masks.EOS):
            assert longest_word(open_word + piece) <= 5, (text, piece)
        assert {" sun", " and"} <= {lm.vocab[i] for i in allowed}


def test_prompt_intersection(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--model", folder, "--n-particles", "12", "--max-tokens", "8"]
    particles = prompt_intersection.main([*arguments, "--prompts", "the sun is", "the old man is"])
    for particle in live(particles):
        assert str(particle.first) == str(particle.second)
        assert 1 <= particle.first.token_count <= 8
        assert str(particle.first.s).startswith("the sun is")
        assert str(particle.second.s).startswith("the old man is")
    assert str(particles.best()) in capsys.readouterr().out


def test_infilling(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = "The old man [] a letter [] under the bridge []."
    particles = infilling.main(["--model", folder, "--n-particles", "20", "--text", text])
    for particle in live(particles):
        filled = r"The old man\b.+ a letter\b.+ under the bridge\b.+\."
        assert re.fullmatch(filled, str(particle)), str(particle)
    assert str(particles.best()) in capsys.readouterr().out


def test_infilling_wants_a_gap() -> None:
    with pytest.raises(SystemExit):
        infilling.main(["--text", "Nothing is missing here."])


def test_haiku(folder: str, capsys: pytest.CaptureFixture[str]) -> None:
    particles = haiku.main(["--model", folder, "--n-particles", "8", "--n-beam", "8"])
    pronunciations = haiku.dictionary()
    for particle in live(particles):
        lines = str(particle).split("\n")
        counts = []
        for line in lines:
            words = re.findall(r"[^\W\d_'’]+(?:['’][^\W\d_]+)*|'[^\W\d_]+", line)
            first = [pronunciations[word.lower().replace("’", "'")][0] for word in words]
            counts.append(sum(sound[-1] in "012" for sounds in first for sound in sounds))
        assert counts == [5, 7, 5], str(particle)
    assert str(particles.best()).split("\n")[0] in capsys.readouterr().out


def test_haiku_counts_what_the_dictionary_says() -> None:
    assert [haiku.syllables(word) for word in (" water", "Beautiful", "don’t", "a")] == [2, 3, 1, 1]
    assert haiku.syllables("xqzt") == haiku.syllables("") == np.inf


@pytest.mark.model
def test_hard_constraints_on_the_default_model(capsys: pytest.CaptureFixture[str]) -> None:
    particles = hard_constraints.main(["--n-particles", "5", "--max-tokens", "10"])
    alive = live(particles)
    for particle in alive:
        assert longest_word(str(particle)) <= 5
        tokens = particle.context.tokens[particle.context.prompt_token_count :]
        assert b"".join(particle.context.lm.byte_vocab[i] for i in tokens) == bytes(particle.context)
    # Short words of English, not noise: the model finds the rule easy enough after this prompt.
    assert particles.log_marginal_likelihood > -15
    assert "the default model" in capsys.readouterr().out
