# Makes a bill of materials of a Go binary, in CycloneDX 1.5 (ECMA-424), from what `go version -m -json BINARY` prints. That is
# what was linked, and not what go.mod would have allowed.
def component(type): ("pkg:golang/\(.Path)@\(.Version)") as $url
  | {type: type, name: .Path, version: .Version, purl: $url, "bom-ref": $url};
{
  bomFormat: "CycloneDX", specVersion: "1.5", version: 1,
  metadata: {component: (.Main | component("application"))},
  components: ([{type: "platform", name: "go", version: .GoVersion, "bom-ref": "go"}]
    + [.Deps[] | (.Replace // .) | component("library")])
}
