package localpg

import "github.com/KimMachineGun/automemlimit/memlimit"

const (
	leastBuffers = 128 // MB, as PostgreSQL has it
	mostBuffers  = 2048
)

// sharedBuffers returns the shared_buffers of a new cluster, in MB: an eighth of the memory, so that the server beside it and the kernel's cache of
// files have room.
func sharedBuffers(memory memlimit.Provider) uint64 {
	bytes, err := memory()
	if err != nil {
		return leastBuffers
	}
	return min(max(bytes/8>>20, leastBuffers), mostBuffers)
}

// memory returns what this process may use, in bytes: what its control group allows, or what the machine has, if that is less.
func memory() (uint64, error) {
	machine, unknown := memlimit.FromSystem()
	allowed, err := memlimit.FromCgroup()
	if err != nil {
		return machine, unknown
	}
	if unknown == nil {
		allowed = min(allowed, machine)
	}
	return allowed, nil
}
