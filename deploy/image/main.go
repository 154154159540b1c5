// SPDX-License-Identifier: Apache-2.0

// Command image writes weft's container image: `make image`.
//
//	go run ./deploy/image -name NAME:TAG -arch amd64 -created SECONDS -programs DIR -o FILE
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weft-net/weft/internal/atomicfile"
	"github.com/weft-net/weft/internal/oci"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run() error {
	name := flag.String("name", "", "the image's `NAME:TAG`")
	arch := flag.String("arch", "", "the programs' `GOARCH`")
	created := flag.Int64("created", 0, "when, in `SECONDS` since 1970")
	programs := flag.String("programs", "",
		"`DIR` with weft, weft-agent, weft-controller, weft-cni, weft-plugin and cni-conformance")
	license := flag.String("license", "LICENSE", "the license's `FILE`")
	out := flag.String("o", "", "the archive's `FILE`")
	flag.Parse()
	i := oci.Image{
		Name: *name, Arch: *arch, Created: time.Unix(*created, 0), Entrypoint: []string{"/usr/bin/weft"},
		// For other vendors' plugins, which are executed among the node's files: in here is nothing but weft.
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "weft",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	for _, f := range []struct {
		path, source string
		mode         int64
	}{
		{"/usr/bin/weft", filepath.Join(*programs, "weft"), 0o755},
		{"/usr/bin/weft-agent", filepath.Join(*programs, "weft-agent"), 0o755},
		{"/usr/bin/weft-controller", filepath.Join(*programs, "weft-controller"), 0o755},
		{"/usr/bin/weft-cni", filepath.Join(*programs, "weft-cni"), 0o755},
		{"/usr/bin/weft-plugin", filepath.Join(*programs, "weft-plugin"), 0o755},
		{"/usr/bin/cni-conformance", filepath.Join(*programs, "cni-conformance"), 0o755},
		{"/usr/share/doc/weft/LICENSE", *license, 0o644},
	} {
		b, err := os.ReadFile(f.source)
		if err != nil {
			return err
		}
		i.Files = append(i.Files, oci.File{Path: f.path, Mode: f.mode, Content: b})
	}
	return atomicfile.WriteFrom(*out, i.Write, 0o644, atomicfile.CrashSafe)
}
