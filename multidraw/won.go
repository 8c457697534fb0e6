package multidraw

import (
	"encoding/json"
	"fmt"
)

// won is a drawn prize as it stands in a state: the JSON of its id, or of the prize as an object.
type won string

func wonOf(p Prize, object bool) won {
	var v any = p.ID
	if object {
		v = p
	}
	text, _ := json.Marshal(v) // A string or a Prize never fails.
	return won(text)
}

// MarshalJSON implements [json.Marshaler].
func (w won) MarshalJSON() ([]byte, error) { return []byte(w), nil }

// UnmarshalJSON implements [json.Unmarshaler]. Objects of other programs have other members than an id, too.
func (w *won) UnmarshalJSON(text []byte) error {
	*w = won(text)
	if w.id() == "" {
		return fmt.Errorf("%.100s is neither the id of a prize nor a prize", text)
	}
	return nil
}

// id is empty where there is none.
func (w won) id() (id string) {
	if len(w) > 0 && w[0] == '"' {
		_ = json.Unmarshal([]byte(w), &id)
		return id
	}
	var p struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal([]byte(w), &p)
	return p.ID
}

// adoptRange returns why these integers can't have been drawn from the range, or nil.
func adoptRange(o request, drawn []int64) error {
	for i, v := range drawn {
		if v < o.Range.Min || v > o.Range.Max {
			return fmt.Errorf("draw %d of what is saved is %d", i, v)
		}
	}
	return nil
}

// adoptPrizes returns why these prizes can't have been drawn from the list, or nil.
func adoptPrizes(o request, drawn []won) error {
	known := make(map[string]bool, len(o.Prizes))
	for _, p := range o.Prizes {
		known[p.ID] = true
	}
	for i, w := range drawn {
		if id := w.id(); !known[id] {
			return fmt.Errorf("draw %d of what is saved is %q", i, id)
		}
	}
	return nil
}
