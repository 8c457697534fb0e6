#!/bin/sh
# Builds the documentation as a static site in bin/site, from the pages of the repository as they are. VitePress and what
# it needs are installed as site/package-lock.json pins them, in .tools/site, so that no tree of npm lies among the sources.
# VitePress refuses links to pages that are not there; site/links.mjs then checks every link of the built pages, with its
# anchor. It exits with 3 where npm is missing or its registry can't be reached.
set -eu

cd "$(dirname "$0")/.."
command -v npm >/dev/null || {
	echo "site: npm is missing, the site is NOT BUILT; on Debian and Ubuntu: apt-get install npm" >&2
	exit 3
}
work=$(pwd -P)/.tools/site
mkdir -p "$work"
work=$(cd "$work" && pwd -P)
cp site/package.json site/package-lock.json "$work/"
rm -rf "$work/.vitepress" "$work/pages"
cp -R site/.vitepress "$work/"
# The pages are built where the packages are found.
mkdir -p "$work/pages/bench" "$work/pages/deploy" "$work/pages/examples"
cp README.md CHANGELOG.md CONTRIBUTING.md "$work/pages/"
cp -R docs "$work/pages/"
for dir in bench deploy examples; do
	cp "$dir/README.md" "$work/pages/$dir/"
done
# Not npm ci: it refuses a lock without the binaries of platforms that npm left out where the lock was written. What is locked
# is installed as it is locked, and those binaries have their exact versions in rollup's and esbuild's own lists.
if ! cmp -s site/package-lock.json "$work/node_modules/.installed"; then
	npm --prefix "$work" install --no-audit --no-fund --ignore-scripts || {
		# Did the registry fail, or the installation?
		npm view vitepress version >/dev/null 2>&1 && exit 1
		echo "site: npm's registry can't be reached, the site is NOT BUILT" >&2
		exit 3
	}
	cp site/package-lock.json "$work/node_modules/.installed"
fi
FAIRLEAD_SITE_ROOT=$(pwd -P) FAIRLEAD_SITE_OUT=$(pwd -P)/bin/site "$work/node_modules/.bin/vitepress" build "$work"
node site/links.mjs bin/site
echo "site: bin/site/index.html; look at it with: (cd bin/site && python3 -m http.server 8000)"
