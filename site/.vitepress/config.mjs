// The site shows the repository's own pages: nothing is written for it. scripts/site.sh says where they are.
import { existsSync, statSync } from 'node:fs'
import { dirname, join, relative, resolve } from 'node:path'
import { defineConfig } from 'vitepress'

const root = process.env.FAIRLEAD_SITE_ROOT
const repository = 'https://github.com/fairlead-dev/fairlead'
const page = /^(README|CHANGELOG|CONTRIBUTING)\.md$|^docs\/.*\.md$|^(bench|deploy|examples)\/README\.md$/

// What is no page of the site, such as a source file, is shown by the repository.
function links(md) {
  md.core.ruler.after('inline', 'repository', (state) => {
    for (const block of state.tokens) {
      for (const token of block.children ?? []) {
        if (token.type !== 'link_open') continue
        const href = token.attrGet('href')
        if (/^([a-z]+:|#|\/)/.test(href)) continue
        const [path, anchor] = href.split('#')
        let target = relative(root, resolve(root, dirname(state.env.relativePath), decodeURI(path)))
        const directory = existsSync(join(root, target)) && statSync(join(root, target)).isDirectory()
        if (directory && page.test(join(target, 'README.md'))) target = join(target, 'README.md')
        token.attrSet('href', page.test(target)
          ? '/' + target.replace(/README\.md$/, '') + (anchor ? '#' + anchor : '')
          : `${repository}/${directory ? 'tree' : 'blob'}/main/${target}`)
      }
    }
  })
}

// The anchors of headings are those that the repository's own pages have, which links are written for.
const slugify = (heading) => heading.trim().toLowerCase().replace(/[^\p{L}\p{M}\p{N}\p{Pc}\- ]/gu, '').replaceAll(' ', '-')

const section = (text, base, pages) => ({ text, collapsed: true, items: pages.map(([text, link]) => ({ text, link: base + link })) })

export default defineConfig({
  title: 'Fairlead',
  description: 'Decides contended things exactly once.',
  srcDir: 'pages',
  outDir: process.env.FAIRLEAD_SITE_OUT,
  rewrites: (id) => id.replace(/(^|\/)README\.md$/, '$1index.md'),
  cleanUrls: false,
  lastUpdated: false,
  markdown: { config: links, html: false, anchor: { slugify } },
  vite: { publicDir: false },
  themeConfig: {
    search: { provider: 'local' },
    outline: [2, 3],
    nav: [
      { text: 'Documentation', link: '/docs/' },
      { text: 'Quick starts', link: '/docs/quickstart/' },
      { text: 'Problems', link: '/docs/problems' },
      { text: 'Changes', link: '/CHANGELOG' },
    ],
    sidebar: [
      { text: 'Overview', link: '/' },
      { text: 'All documentation', link: '/docs/' },
      section('Quick starts', '/docs/quickstart/', [
        ['All', ''], ['Lottery', 'lottery'], ['Auctions', 'auctions'], ['Ledger', 'ledger'], ['Locks', 'locks'],
        ['Many draws', 'multidraws'], ['Publishing', 'publishing'], ['Between ledgers', 'cross-transfers'], ['Socket.IO', 'socketio'],
      ]),
      section('Reference', '/docs/', [['Guarantees', 'guarantees'], ['Promises about time', 'operations/promises'], ['Flags and environment', 'flags'], ['Problems', 'problems'], ['Metrics', 'operations/metrics'], ['Requirements', 'requirements']]),
      section('Operation', '/', [
        ['Stop and wipe a trial', 'docs/operations/trial'], ['Deployment', 'deploy/'], ['Several servers', 'docs/operations/servers'], ['Runbook', 'docs/operations/runbook'], ['Faults', 'docs/operations/faults'], ['Seeded bugs', 'docs/operations/mutants'],
        ['Restores', 'docs/operations/restores'], ['Audits', 'docs/operations/audit'], ['Traces', 'docs/operations/traces'], ['Agents', 'docs/operations/mcp'], ['Witness', 'docs/operations/witness'], ['Requirement names', 'docs/operations/requirement-names'],
      ]),
      section('How it works', '/docs/design/', [
        ['A purchase', 'purchase'], ['An auction', 'auction'], ['Commands', 'commands'], ['Outcomes', 'outcomes'], ['Memory', 'memory'], ['Draws', 'fairdraw'],
        ['Many draws', 'multidraw'], ['Locks', 'lock'], ['Claims', 'claim'], ['Idempotency', 'idempotency'], ['Checkpoints', 'checkpoint'], ['Sagas', 'saga'],
        ['Publishing', 'publish'], ['History', 'history'], ['Console', 'console'],
      ]),
      section('More', '/', [['Decisions', 'docs/adr/'], ['Examples', 'examples/'], ['Benchmarks', 'bench/'], ['Contributing', 'CONTRIBUTING']]),
    ],
  },
})
