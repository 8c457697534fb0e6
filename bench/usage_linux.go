package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// clockTicks is how many of /proc's time units are a second; it is 100 on every Linux that Go runs on.
const clockTicks = 100

// usage is what the processes have used so far, in seconds of processor time, and the server's memory in bytes.
type usage struct {
	server, store, generator float64
	rss, peakRSS             int64
}

// Usage is what one turn used: processor seconds of each part (the store is PostgreSQL or Redis), and the server's resident memory at its end and at its
// highest since the server's start, in MiB.
type Usage struct {
	ServerSeconds    float64 `json:"server_cpu_s"`
	StoreSeconds     float64 `json:"store_cpu_s"`
	GeneratorSeconds float64 `json:"generator_cpu_s"`
	RSSMiB           float64 `json:"server_rss_mib"`
	PeakRSSMiB       float64 `json:"server_peak_rss_mib"`
}

func (u usage) since(before usage) Usage {
	return Usage{
		ServerSeconds:    u.server - before.server,
		StoreSeconds:     u.store - before.store,
		GeneratorSeconds: u.generator - before.generator,
		RSSMiB:           float64(u.rss) / mib,
		PeakRSSMiB:       float64(u.peakRSS) / mib,
	}
}

func (s *side) usage() (u usage, err error) {
	if u.server, _, err = processorTime(s.cmd.Process.Pid); err != nil {
		return u, fmt.Errorf("%s: %w", s.name, err)
	}
	if u.generator, _, err = processorTime(os.Getpid()); err != nil {
		return u, err
	}
	if u.store, err = treeTime(s.store); err != nil {
		return u, fmt.Errorf("the store of %s: %w", s.name, err)
	}
	u.rss, u.peakRSS, err = residentMemory(s.cmd.Process.Pid)
	return u, err
}

// processorTime returns the seconds that a process has used, and of that and its ended children.
func processorTime(pid int) (own, withEnded float64, err error) {
	fields, err := statFields(pid)
	if err != nil {
		return 0, 0, err
	}
	var ticks [4]int64 // utime, stime, cutime, cstime
	for i := range ticks {
		if ticks[i], err = strconv.ParseInt(fields[11+i], 10, 64); err != nil {
			return 0, 0, fmt.Errorf("read the time of process %d: %w", pid, err)
		}
	}
	own = float64(ticks[0]+ticks[1]) / clockTicks
	return own, own + float64(ticks[2]+ticks[3])/clockTicks, nil
}

// statFields returns the fields of /proc/PID/stat after the command name, from the state on.
func statFields(pid int) ([]string, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat")) //nolint:gosec // A number is no path.
	if err != nil {
		return nil, fmt.Errorf("read the state of process %d: %w", pid, err)
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 15 {
		return nil, fmt.Errorf("state of process %d has %d fields", pid, len(fields))
	}
	return fields, nil
}

// treeTime adds up a process, its ended children and its running ones.
func treeTime(pid int) (float64, error) {
	_, total, err := processorTime(pid)
	if err != nil {
		return 0, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	parent := strconv.Itoa(pid)
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		// A process that has just ended is counted with its parent next time.
		if fields, err := statFields(child); err == nil && fields[1] == parent {
			if own, _, err := processorTime(child); err == nil {
				total += own
			}
		}
	}
	return total, nil
}

func residentMemory(pid int) (now, peak int64, err error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status")) //nolint:gosec // A number is no path.
	if err != nil {
		return 0, 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || (fields[0] != "VmRSS:" && fields[0] != "VmHWM:") {
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
		}
		if fields[0] == "VmRSS:" {
			now = kib << 10
		} else {
			peak = kib << 10
		}
	}
	return now, peak, nil
}

// Machine is what the figures were measured on.
type Machine struct {
	Cores      int               `json:"cores"`
	Processor  string            `json:"processor"`
	MemoryGiB  float64           `json:"memory_gib"`
	Kernel     string            `json:"kernel"`
	Go         string            `json:"go"`
	PostgreSQL string            `json:"postgresql"`
	Settings   map[string]string `json:"postgresql_settings"`
	CommitUS   float64           `json:"median_commit_us"`
	// LoadAverage is the kernel's of the last minute, before the run: what else the machine had to do.
	LoadAverage float64 `json:"load_average_before"`
}

// settings are those of PostgreSQL that decide what a commit costs and promises.
func settings() []string {
	return []string{
		"fsync", "synchronous_commit", "full_page_writes", "wal_sync_method", "shared_buffers", "max_wal_size",
		"commit_delay", "jit",
	}
}

func (h *house) machine(ctx context.Context) (Machine, error) {
	m := Machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Settings: map[string]string{}}
	m.Processor = procValue("/proc/cpuinfo", "model name")
	m.Kernel = strings.TrimSpace(readAll("/proc/sys/kernel/osrelease"))
	if kib, _, ok := strings.Cut(procValue("/proc/meminfo", "MemTotal"), " "); ok {
		n, _ := strconv.ParseFloat(kib, 64)
		m.MemoryGiB = n / (1 << 20)
	}
	before, _, _ := strings.Cut(readAll("/proc/loadavg"), " ")
	m.LoadAverage, _ = strconv.ParseFloat(before, 64)
	if err := h.admin.QueryRow(ctx, "SHOW server_version").Scan(&m.PostgreSQL); err != nil {
		return m, fmt.Errorf("ask for PostgreSQL's version: %w", err)
	}
	for _, name := range settings() {
		var value string
		if err := h.admin.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value); err != nil {
			return m, fmt.Errorf("ask for %s: %w", name, err)
		}
		m.Settings[name] = value
	}
	if m.Settings["fsync"] != "on" || m.Settings["synchronous_commit"] != "on" {
		return m, fmt.Errorf("PostgreSQL is not durable (%v), so there is nothing to compare", m.Settings)
	}
	var err error
	m.CommitUS, err = h.commitTime(ctx)
	return m, err
}

// commitTime measures the median of small durable commits, one after the other, in microseconds.
func (h *house) commitTime(ctx context.Context) (float64, error) {
	const commits = 200
	// A transactional message is written to the log and nowhere else, so its commit is a bare durable commit.
	var times []float64
	for range commits {
		start := time.Now()
		if _, err := h.admin.Exec(ctx, "SELECT pg_logical_emit_message(true, 'bench', 'probe')"); err != nil {
			return 0, fmt.Errorf("measure a commit: %w", err)
		}
		times = append(times, float64(time.Since(start).Nanoseconds())/1e3)
	}
	return median(times), nil
}

func readAll(path string) string {
	text, _ := os.ReadFile(path) //nolint:gosec // Paths of this file only; what can't be read is left out.
	return string(text)
}

func procValue(path, name string) string {
	for line := range strings.Lines(readAll(path)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
