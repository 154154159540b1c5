#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# release.sh DIR: what a release consists of, into DIR: for amd64 and arm64 an archive of the static programs, one
# archive of the container image for both, the manifests, the Helm chart, a software bill of materials, krew's manifest of `kubectl weft`, and the checksums
# of all. The version is the tag of the commit. The same commit and the same Go give the same bytes. It needs no network once Go has the modules.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?release.sh DIR}
go=${GO:-go}
archs=${ARCHS:-amd64 arm64}
image=${IMAGE_NAME:-localhost/weft} # a registry's name for it, where the image is pushed to one
url=${RELEASE_URL:-https://github.com/weft-net/weft/releases/download} # below it, the archives by version
version=${VERSION:-$(git describe --tags --always --dirty)}
created=$(git log -1 --format=%ct)
export CGO_ENABLED=0

[[ $version != *-dirty ]] || {
	echo "release: the working tree differs from its commit: commit first, so that others can build the same" >&2
	exit 1
}
git describe --tags --exact-match >/dev/null 2>&1 ||
	echo "release: the commit has no tag: this is a snapshot, $version" >&2

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -f "$out"/weft-* "$out"/SHA256SUMS

# archive FILE DIR: an archive without times and owners.
archive() {
	tar --sort=name --mtime="@$created" --owner=0 --group=0 --numeric-owner -C "$(dirname "$2")" -cf - "$(basename "$2")" | gzip -9n >"$1"
}

programs=() images=()
for arch in $archs; do
	echo "release: programs for linux/$arch"
	dir=$work/$arch/weft-$version
	mkdir -p "$dir/cni"
	GOOS=linux GOARCH=$arch "$go" build -buildvcs=false -trimpath -tags grpcnotrace -ldflags "-s -w -X main.version=$version" -o "$dir/" ./cmd/...
	# weft-cni has no version to say, but two versions of it are never the same bytes.
	GOOS=linux GOARCH=$arch "$go" build -buildvcs=false -trimpath -ldflags "-s -w -buildid=$version" -o "$dir/" ./cmd/weft-cni
	for program in "$dir"/*; do
		[ -d "$program" ] || programs+=("$program")
	done
	make --no-print-directory -s links DIR="$dir/cni"
	ln -s weft "$dir/kubectl-weft"
	cp LICENSE README.md CHANGELOG.md "$dir/"
	archive "$out/weft-$version-linux-$arch.tar.gz" "$dir"
	images+=(-programs "$arch=$dir")
done
echo "release: image for $archs"
"$go" run ./deploy/image -name "$image:$version" -created "$created" "${images[@]}" -o "$out/weft-$version-image.tar"

echo "release: manifests, bill of materials, checksums"
mkdir -p "$work/manifests/weft-$version-manifests"
for manifest in deploy/crds.yaml deploy/nad-crd.yaml deploy/weft*.yaml deploy/kubevirt/*.yaml; do
	sed "s#localhost/weft:dev#$image:$version#" "$manifest" >"$work/manifests/weft-$version-manifests/$(basename "$manifest")"
done
archive "$out/weft-$version-manifests.tar.gz" "$work/manifests/weft-$version-manifests"

# The Helm chart: its version must be a semantic one, and its image is the release's.
chart_version=${version#v}
[[ $chart_version =~ ^[0-9]+\.[0-9]+\.[0-9]+ ]] || chart_version=0.0.0-g$version
mkdir -p "$work/chart/weft/crds"
cp -r deploy/chart/values.schema.json deploy/chart/templates deploy/chart/files "$work/chart/weft/"
cp deploy/crds/*.yaml deploy/nad-crd.yaml "$work/chart/weft/crds/"
sed "s#^version: .*#version: $chart_version#; s#^appVersion: .*#appVersion: \"$version\"#" deploy/chart/Chart.yaml >"$work/chart/weft/Chart.yaml"
sed "s#^  repository: localhost/weft\$#  repository: $image#" deploy/chart/values.yaml >"$work/chart/weft/values.yaml"
archive "$out/weft-$version-chart.tgz" "$work/chart/weft"
"$go" run ./deploy/sbom -version "$version" -created "$created" "${programs[@]}" >"$out/weft-$version.spdx.json"

# krew: the manifest by which `kubectl krew install --manifest` finds the archives. Its versions are semantic ones.
krew() {
	cat <<-END
		apiVersion: krew.googlecontainertools.github.com/v1alpha2
		kind: Plugin
		metadata:
		  name: weft
		spec:
		  version: v${version#v}
		  homepage: https://github.com/weft-net/weft
		  shortDescription: Explain, trace and test the network of pods and VMs
		  description: |
		    kubectl weft status, explain, trace and connectivity-test ask the agents of weft, a network stack for Kubernetes
		    pods and virtual machines, why a pod does not reach another.
		  platforms:
	END
	for arch in $archs; do
		local file=weft-$version-linux-$arch.tar.gz
		cat <<-END
			  - selector:
			      matchLabels: {os: linux, arch: $arch}
			    uri: $url/$version/$file
			    sha256: $(sha256sum "$out/$file" | cut -d' ' -f1)
			    files:
			      - {from: weft-$version/weft, to: .}
			      - {from: weft-$version/LICENSE, to: .}
			    bin: weft
		END
	done
}
krew >"$out/weft-krew.yaml"
(cd "$out" && sha256sum weft-* >SHA256SUMS)
echo "release: weft $version is in $out"
