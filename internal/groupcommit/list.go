package groupcommit

// list is an intrusive doubly linked list: the links live inside the items, so that queueing allocates
// nothing and an item leaves from the middle in constant time. The zero value is an empty list.
type list[T any] struct {
	head, tail *link[T]
	count      int
}

// link is an item's place in at most one list. item is set once, when the item is made.
type link[T any] struct {
	prev, next *link[T]
	item       T
}

func (l *list[T]) pushBack(n *link[T]) {
	n.prev, n.next = l.tail, nil
	if l.tail == nil {
		l.head = n
	} else {
		l.tail.next = n
	}
	l.tail = n
	l.count++
}

// remove takes n out; n must be in l.
func (l *list[T]) remove(n *link[T]) {
	if n.prev == nil {
		l.head = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next == nil {
		l.tail = n.prev
	} else {
		n.next.prev = n.prev
	}
	n.prev, n.next = nil, nil
	l.count--
}

// popFront takes the oldest item out, or reports that there is none.
func (l *list[T]) popFront() (item T, ok bool) {
	n := l.head
	if n == nil {
		return item, false
	}
	l.remove(n)
	return n.item, true
}
