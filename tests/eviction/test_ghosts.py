from __future__ import annotations

from tieredkv.pool.eviction.ghosts import NOTE_BITS, Ghosts


def filled(*generations: list[str]) -> Ghosts:
    ghosts = Ghosts()
    for names in generations:
        ghosts.turn(len(names))
        for note, name in enumerate(names):
            ghosts.add(name, note)
    return ghosts


def names(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def test_two_generations_are_remembered_without_holes() -> None:
    older, recent = names("older", 3000), names("recent", 1000)
    ghosts = filled(older, recent)
    assert [ghosts.take(name) for name in recent] == list(range(1000))
    assert [ghosts.take(name) for name in older] == list(range(3000))


def test_what_came_before_them_is_forgotten() -> None:
    oldest = names("oldest", 100)
    ghosts = filled(oldest, names("older", 100), names("recent", 100))
    assert [ghosts.take(name) for name in oldest] == [None] * 100


def test_a_name_is_taken_once() -> None:
    ghosts = filled(names("x", 50))
    assert ghosts.take("x7") == 7
    assert ghosts.take("x7") is None
    assert [ghosts.take(f"x{number}") for number in range(50) if number != 7] == [
        number for number in range(50) if number != 7
    ]


def test_the_room_of_a_generation_counts_down() -> None:
    ghosts = Ghosts()
    assert ghosts.room == 0
    ghosts.turn(2)
    ghosts.add("a", 0)
    assert ghosts.room == 1


def test_a_note_keeps_all_its_bits() -> None:
    largest = (1 << NOTE_BITS) - 1
    ghosts = Ghosts()
    ghosts.turn(1)
    ghosts.add("a", largest)
    assert ghosts.take("a") == largest
