package saga

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
)

// GID names the branch of a two-phase transaction in a term.
func GID(coordinator string, id uuid.UUID, term int64, branch int) string {
	return fmt.Sprintf("%s:%s:%d:%d", coordinator, id, term, branch)
}

// ParseGID reads what [GID] made after the coordinator's part.
func ParseGID(coordinator, gid string) (id uuid.UUID, term int64, ok bool) {
	rest, ok := strings.CutPrefix(gid, coordinator+":")
	parts := strings.Split(rest, ":")
	if !ok || len(parts) != 3 {
		return id, 0, false
	}
	id, err := uuid.Parse(parts[0])
	if err != nil {
		return id, 0, false
	}
	term, err = strconv.ParseInt(parts[1], 10, 64)
	return id, term, err == nil
}

// IDOfGID finds the saga in what [GID] made.
func IDOfGID(gid string) (uuid.UUID, bool) {
	parts := strings.Split(gid, ":")
	if len(parts) < 4 {
		return uuid.UUID{}, false
	}
	id, err := uuid.Parse(parts[len(parts)-3])
	return id, err == nil
}
