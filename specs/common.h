// What the specifications share.

// guarantee ends the search where a guarantee does not hold, and names it: by its number in docs/guarantees.md.
#define guarantee(name, condition) \
	if \
	:: (condition) -> skip \
	:: else -> printf("broken: %e\n", name); assert(false) \
	fi

// Sets of small numbers are bits.
#define in(set, n) (((set) >> (n)) & 1)
#define add(set, n) set = set | (1 << (n))
#define drop(set, n) set = set & (255 - (1 << (n)))
