// Command sbom prints what a Go binary is made of as a CycloneDX 1.5 document (ECMA-424), from the build information
// within the binary: what was linked, and not what go.mod would have allowed.
//
//	go run ./scripts/sbom bin/fairlead > fairlead.cdx.json
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"runtime/debug"
)

type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
	BOMRef  string `json:"bom-ref,omitempty"`
}

type document struct {
	Format      string `json:"bomFormat"`
	SpecVersion string `json:"specVersion"`
	Version     int    `json:"version"`
	Metadata    struct {
		Component component `json:"component"`
	} `json:"metadata"`
	Components []component `json:"components"`
}

func main() {
	if len(os.Args) != 2 {
		fail(fmt.Errorf("usage: sbom BINARY"))
	}
	info, err := buildinfo.ReadFile(os.Args[1])
	if err != nil {
		fail(err)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	if err := out.Encode(describe(info)); err != nil {
		fail(err)
	}
}

func describe(info *debug.BuildInfo) document {
	d := document{Format: "CycloneDX", SpecVersion: "1.5", Version: 1}
	d.Metadata.Component = module("application", &info.Main)
	d.Components = append(d.Components, component{Type: "platform", Name: "go", Version: info.GoVersion, BOMRef: "go"})
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		d.Components = append(d.Components, module("library", m))
	}
	return d
}

func module(kind string, m *debug.Module) component {
	purl := "pkg:golang/" + m.Path + "@" + m.Version
	return component{Type: kind, Name: m.Path, Version: m.Version, PURL: purl, BOMRef: purl}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "sbom:", err)
	os.Exit(1)
}
