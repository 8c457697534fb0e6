package live

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/fairlead-dev/fairlead/internal/groupcommit"
)

// headReads are the questions for the last numbers of topics. Those that come while one is under way wait and are asked
// together, so that thousands of subscribers that come at once cost a few queries. An answer is never older than its question.
type headReads = groupcommit.Group[struct{}, string, int64]

// noTopic is the last number of a topic that does not exist.
const noTopic = -1

func newHeadReads(h *Hub) *headReads {
	return groupcommit.New(func(ctx context.Context, _ struct{}, topics []string) ([]int64, error) {
		heads, err := h.headsOf(ctx, slices.Compact(slices.Sorted(slices.Values(topics))))
		if err != nil {
			return nil, err
		}
		last := make([]int64, len(topics))
		for i, topic := range topics {
			n, ok := heads[topic]
			if !ok {
				n = noTopic
			}
			last[i] = n
		}
		return last, nil
	}, groupcommit.Options{MaxQueue: maxHeadQuestions, MaxBatch: maxHeadQuestions, Divisible: func(error) bool { return false }})
}

// head returns the last number of a topic, or [ErrNoTopic].
func (h *Hub) head(ctx context.Context, topic string) (int64, error) {
	last, err := h.heads.Do(ctx, struct{}{}, topic)
	switch {
	case err != nil && ctx.Err() != nil:
		return 0, ctx.Err()
	case err != nil && h.ctx.Err() != nil, errors.Is(err, groupcommit.ErrClosed):
		return 0, ErrClosed
	case err == nil && last == noTopic:
		return 0, ErrNoTopic
	}
	return last, err
}

// headsOf asks the log for any number of topics, in questions of a bounded size.
func (h *Hub) headsOf(ctx context.Context, topics []string) (map[string]int64, error) {
	heads := make(map[string]int64, len(topics))
	for part := range slices.Chunk(topics, headsPerQuery) {
		some, err := h.o.Log.Heads(ctx, part)
		if err != nil {
			return nil, err
		}
		maps.Copy(heads, some)
	}
	return heads, nil
}
