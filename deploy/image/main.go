// SPDX-License-Identifier: Apache-2.0

// Command image writes weft's container image, for one architecture or several: `make image`.
//
//	go run ./deploy/image -name NAME:TAG -created SECONDS -programs amd64=DIR -programs arm64=DIR -o FILE
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
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
	created := flag.Int64("created", 0, "when, in `SECONDS` since 1970")
	license := flag.String("license", "LICENSE", "the license's `FILE`")
	out := flag.String("o", "", "the archive's `FILE`")
	var dirs [][2]string // GOARCH and directory
	flag.Func("programs", "`GOARCH=DIR`: the directory with weft, weft-agent, weft-controller, weft-bgp, weft-cni, weft-plugin and "+
		"cni-conformance of an architecture; repeatable", func(v string) error {
		arch, dir, ok := strings.Cut(v, "=")
		if !ok || arch == "" || dir == "" {
			return fmt.Errorf("%q is not GOARCH=DIR", v)
		}
		dirs = append(dirs, [2]string{arch, dir})
		return nil
	})
	flag.Parse()
	var images []oci.Image
	for _, d := range dirs {
		i, err := image(*name, d[0], d[1], *license, time.Unix(*created, 0))
		if err != nil {
			return err
		}
		images = append(images, i)
	}
	return atomicfile.WriteFrom(*out, func(w io.Writer) error { return oci.Write(w, images...) }, 0o644,
		atomicfile.CrashSafe)
}

// image returns the image of an architecture, whose programs are in dir.
func image(name, arch, dir, license string, created time.Time) (oci.Image, error) {
	i := oci.Image{
		Name: name, Arch: arch, Created: created, Entrypoint: []string{"/usr/bin/weft"},
		// For other vendors' plugins, which are executed among the node's files: in here is nothing but weft.
		Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "weft",
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	sources := map[string]string{"/usr/share/doc/weft/LICENSE": license}
	for _, program := range []string{"weft", "weft-agent", "weft-controller", "weft-bgp", "weft-cni", "weft-plugin", "cni-conformance"} {
		sources["/usr/bin/"+program] = filepath.Join(dir, program)
	}
	for path, source := range sources {
		b, err := os.ReadFile(source)
		if err != nil {
			return oci.Image{}, err
		}
		mode := int64(0o755)
		if source == license {
			mode = 0o644
		}
		i.Files = append(i.Files, oci.File{Path: path, Mode: mode, Content: b})
	}
	return i, nil
}
